"""From the label bytes of a series to those that are forwarded."""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Any

from lens_core import Directory, Pod, workload_of
from lens_core.plugin_api.protobuf import WireError, delimited

from .device_counters import words_of_exporter
from .finding import Keys, PodFinder
from .forward import LabelSet
from .labels import METRIC_NAME, Label, RefusedSeries, checked, make_label, read_labels
from .roles import Layout, PodLabels
from .settings import RemoteWriteSettings

OURS = ("pod_name", "pod_uid", "workload_name", "workload_uid")
COPY_PREFIX = "workload_"
VALUE_TAG = b"\x12"
_MEMO_KEYS = 50_000


class Enricher:
    """Makes the entries of the label-set table, label by label, from what the directory knows."""

    def __init__(self, settings: RemoteWriteSettings, directory: Directory, form: Any) -> None:
        self._settings = settings
        self._form = form
        self._directory = directory
        self._finder = PodFinder(settings)
        globs = "|".join(map(fnmatch.translate, settings.drop_negative))
        self._negative = re.compile(globs or r"(?!)", re.IGNORECASE)
        self._index = directory.index
        self._found: dict[Keys, Pod | None] = {}
        self._epoch = 1
        self.learn: Callable[[bytes, Layout], None] = lambda block, layout: None
        # The words by which to look for counters of devices, of the exporters that were ever heard of.
        self.counter_words: frozenset[bytes] = frozenset()

    def refresh(self) -> int:
        """Take up what the directory knows now; the epoch, a number that changes with it."""
        if self._directory.index is not self._index:
            self._index = self._directory.index
            self._epoch += 1
            self._found.clear()
        return self._epoch

    def pod(self, keys: Keys) -> Pod | None:
        """The pod that the directory knows by these keys."""
        if keys and keys not in self._found:
            if len(self._found) >= _MEMO_KEYS:
                self._found.clear()
            self._found[keys] = self._finder.find_pod(keys, self._index)
        return self._found[keys] if keys else None

    def watches(self, name: str) -> bool:
        """Whether negative samples of this metric are dropped."""
        return self._negative.match(name) is not None

    def pod_labels(self, telling: bytes) -> PodLabels:
        """The labels that a series gets by those of its own that tell its pod."""
        keys = self._finder.keys(read_labels(telling))
        pod = self.pod(keys)
        of_pod, of_workload = _labels_of(pod, self._settings.workload)
        return _encode_labels(of_pod), _encode_labels(of_workload), pod, keys

    def make_label_set(self, block: bytes) -> LabelSet | None:
        """An entry; None for a label set that is damaged or refused."""
        try:
            return self.label_set(block)
        except (WireError, RefusedSeries):
            return None

    def label_set(self, block: bytes) -> LabelSet:
        """An entry, label by label; `learn` gets its layout. Raises WireError or RefusedSeries."""
        labels = checked(read_labels(block))
        entry: LabelSet = self._form.LabelSet()
        entry.received = entry.forwarded = block
        entry.keys = self._finder.keys(labels)
        entry.pod = self.pod(entry.keys)
        of_pod, of_workload = _labels_of(entry.pod, self._settings.workload)
        forwarded = _encode_labels(_replaced(labels, [*of_pod, *of_workload]))
        if forwarded != block:
            entry.forwarded = forwarded
        name = next(label[1] for label in labels if label[0] == METRIC_NAME)
        entry.negative = self.watches(name)
        self.counter_words |= words_of_exporter(name)
        if self._settings.copies != "none":
            self._make_copies(entry, labels, name)
        elif (layout := _layout_of(block, labels, self._finder.telling)) is not None:
            self.learn(block, layout)
        return entry

    def labels(self, block: bytes) -> dict[str, str]:
        """The labels as they came; for the debug route."""
        return {label[0]: label[1] for label in read_labels(block)}

    def _make_copies(self, entry: LabelSet, labels: list[Label], name: str) -> None:
        """One label set for each workload of the pod, its name prefixed."""
        renamed = [label for label in labels if label[0] != METRIC_NAME]
        renamed.append(make_label(METRIC_NAME, COPY_PREFIX + name))
        entry.copies = tuple(_encode_labels(_replaced(renamed, ours)) for ours in _labels_of_copies(entry.pod))
        if self._settings.copies == "only":
            entry.forwarded = None
            entry.reason = "" if entry.copies else "no_workload_found" if entry.pod else "missing_pod_info"


def _layout_of(block: bytes, labels: list[Label], telling: Collection[str]) -> Layout | None:
    """The layout of a label set; None if its encoding is not the usual one or a pod's labels do not belong together."""
    names = [label[0] for label in labels]
    pod, pod_end, workload, workload_end = (bisect_left(names, ours) for ours in OURS)
    if pod != pod_end or workload != workload_end or not set(OURS).isdisjoint(names):
        return None
    if not block.isascii() or block != _encode_labels([make_label(name, value) for name, value, _ in labels]):
        return None
    starts = [delimited(1, name.encode()) + VALUE_TAG for name in names]
    return starts, [name in telling for name in names], names.index(METRIC_NAME), pod, workload


def _labels_of(pod: Pod | None, which: str) -> tuple[list[Label], list[Label]]:
    """Return the labels for a series of this pod: those of the pod, and of its root or nearest workload."""
    if pod is None:
        return [], []
    workload = workload_of(pod, which)
    return _pod_labels(pod), _workload_labels(workload.name, workload.uid) if workload is not None else []


def _labels_of_copies(pod: Pod | None) -> list[list[Label]]:
    """Return the labels for each copy of a series of this pod: one for each workload."""
    workloads = pod.workloads if pod is not None else []
    return [[*_pod_labels(pod), *_workload_labels(one.name, one.uid)] for one in workloads if pod is not None]


def _replaced(labels: list[Label], ours: list[Label]) -> list[Label]:
    """Labels with ours instead of those of the same names, sorted by name."""
    names = {label[0] for label in ours}
    # Names are unique, so that nothing but names is compared.
    return sorted([*(label for label in labels if label[0] not in names), *ours])


def _encode_labels(labels: list[Label]) -> bytes:
    """Labels as the fields of a TimeSeries."""
    return b"".join([label[2] for label in labels])


def _pod_labels(pod: Pod) -> list[Label]:
    ours = [make_label("pod_name", pod.name)]
    return [*ours, make_label("pod_uid", pod.uid)] if pod.uid else ours


def _workload_labels(name: str, uid: str) -> list[Label]:
    return [make_label("workload_name", name or uid), make_label("workload_uid", uid)]
