"""From the label bytes of a series to those that are forwarded."""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_left
from collections.abc import Callable

from lens_core.base.protobuf import WireError, delimited
from lens_core.directory.directory import Directory

from .attaching import NO_POD, OURS, PodLabelMaker, join, replaced
from .finding import Keys, PodFinder
from .forms import Form
from .forward import LabelSet, Layout, PodLabels
from .labels import METRIC_NAME, Label, LabelReader, RefusedSeries, checked, make_label
from .settings import RemoteWriteSettings

COPY_PREFIX = "workload_"
VALUE_TAG = b"\x12"
_MEMO_NAMES = 10_000
_MEMO_KEYS = 50_000


class Enricher:
    """Makes the entries of the label-set table, label by label, from what the directory knows."""

    def __init__(self, settings: RemoteWriteSettings, directory: Directory, form: Form) -> None:
        self._settings = settings
        self._form = form
        self._directory = directory
        self._finder = PodFinder(settings)
        self._reader = LabelReader(self._finder.telling)
        self._negative = [re.compile(fnmatch.translate(glob), re.IGNORECASE) for glob in settings.drop_negative]
        self._negative_names: dict[str, bool] = {}
        self._picture = directory.picture
        self._pods = PodLabelMaker(settings.workload)
        self._found: dict[Keys, int] = {(): NO_POD}
        self._epoch = 1

    def refresh(self) -> int:
        """Take up what the directory knows now; the epoch, a number that changes with it."""
        if self._directory.picture is not self._picture:
            self._picture = self._directory.picture
            self._epoch += 1
            self._found = {(): NO_POD}
            self._pods.keep(self._picture.pods.values())
        return self._epoch

    def pod(self, keys: Keys) -> int:
        """The number of the pod that the directory knows by these keys."""
        try:
            return self._found[keys]
        except KeyError:
            if len(self._found) >= _MEMO_KEYS:
                self._found = {(): NO_POD}
            number = self._found[keys] = self._pods.number(self._finder.find(keys, self._picture))
            return number

    def pod_labels(self, telling: bytes) -> PodLabels:
        """The labels that a series gets by those of its own that tell its pod."""
        keys = self._finder.keys([label for label in self._reader.read(telling) if label[3]])
        number = self.pod(keys)
        return (*self._pods.pieces(number), number, keys)

    def make(self, block: bytes, learn: Callable[[bytes, Layout], None]) -> LabelSet | None:
        """An entry, and how it is laid out; None for a label set that is damaged or refused."""
        try:
            return self.label_set(block, learn)
        except (WireError, RefusedSeries):
            return None

    def label_set(self, block: bytes, learn: Callable[[bytes, Layout], None] | None = None) -> LabelSet:
        """An entry, label by label. Raises WireError or RefusedSeries."""
        labels = checked(self._reader.read(block))
        telling = [label for label in labels if label[3]]
        keys = self._finder.keys(telling) if telling else ()
        entry = self._form.LabelSet()
        entry.received = entry.forwarded = block
        entry.keys, entry.pod = keys, self.pod(keys)
        entry.unattached = int(entry.pod == NO_POD)
        forwarded = join(replaced(labels, self._pods.labels(entry.pod)))
        if forwarded != block:
            entry.forwarded = forwarded
        name = next(label[1] for label in labels if label[0] == METRIC_NAME)
        entry.negative = self.watches(name)
        if self._settings.copies != "none":
            self._make_copies(entry, labels, name)
        elif learn is not None and (layout := _layout_of(block, labels)) is not None:
            learn(block, layout)
        return entry

    def labels(self, block: bytes) -> dict[str, str]:
        """The labels as they came; for the debug route."""
        return {label[0]: label[1] for label in self._reader.read(block)}

    def watches(self, name: str) -> bool:
        """Whether negative samples of this metric are dropped."""
        known = self._negative_names.get(name)
        if known is None:
            if len(self._negative_names) > _MEMO_NAMES:
                self._negative_names.clear()
            known = self._negative_names[name] = any(glob.match(name) for glob in self._negative)
        return known

    def _make_copies(self, entry: LabelSet, labels: list[Label], name: str) -> None:
        """One label set for each workload of the pod, its name prefixed."""
        renamed = [label for label in labels if label[0] != METRIC_NAME]
        renamed.append(make_label(METRIC_NAME, COPY_PREFIX + name))
        entry.copies = tuple(join(replaced(renamed, ours)) for ours in self._pods.copies(entry.pod))
        if self._settings.copies == "only":
            entry.forwarded = None
            entry.reason = "" if entry.copies else "no_workload_found" if entry.pod else "missing_pod_info"


def _layout_of(block: bytes, labels: list[Label]) -> Layout | None:
    """The layout of a label set; None if its encoding is not the usual one or a pod's labels do not belong together."""
    names = [label[0] for label in labels]
    pod, pod_end, workload, workload_end = (bisect_left(names, ours) for ours in OURS)
    if pod != pod_end or workload != workload_end or not set(OURS).isdisjoint(names):
        return None
    if not block.isascii() or block != join([make_label(name, value) for name, value, _, _ in labels]):
        return None
    starts = [delimited(1, name.encode()) + VALUE_TAG for name in names]
    return starts, [label[3] for label in labels], names.index(METRIC_NAME), pod, workload
