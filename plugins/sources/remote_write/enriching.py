"""From the label fields of a series to those that go on, remembered, because senders repeat them with every sample."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from lens_core import Pod
from lens_core.directory_picture import Picture, workload_of
from lens_core.identity import Directory

from .finding import Keys, PodFinder
from .labels import Label, LabelReader, checked, make_label
from .settings import RemoteWriteSettings

ROTATE_SECONDS = 600.0
# A longer prefix takes the slow road; nearly all are below 1 kB.
LONGEST_QUICK_PREFIX = 3900
COPY_PREFIX = "workload_"


class Entry(NamedTuple):
    """What becomes of one label set, right for one picture of the directory.

    `prefix` are its labels as they go on (None: only copies do), `copies` those of further series. `quick` says that
    it needs no look at its samples and is one series; `unattached` is 1 if no pod was found; `reason` says why it
    goes nowhere, if that is so.
    """

    picture: Picture
    prefix: bytes | None
    quick: bool
    unattached: int
    negative: bool
    copies: tuple[bytes, ...]
    reason: str
    keys: Keys
    pod: Pod | None


class Enricher:
    """Two generations of entries: what was not used since the last rotation but one is forgotten.

    Rotates when a generation is full and at least every ten minutes. When the directory changes, an entry whose pod
    is still the same costs a look-up, the others are made anew.
    """

    def __init__(
        self, settings: RemoteWriteSettings, directory: Directory, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._clock = clock
        self._reader = LabelReader()
        self._finder = PodFinder(settings)
        self._found: dict[Keys, Pod | None] = {}
        self._ours: dict[int, list[Label]] = {}
        self._negative = [re.compile(fnmatch.translate(glob), re.IGNORECASE) for glob in settings.drop_negative]
        self._negative_names: dict[str, bool] = {}
        self._old: dict[bytes, Entry] = {}
        self._rotated_at = clock()
        self.young: dict[bytes, Entry] = {}
        self.picture = directory.picture

    def begin(self) -> None:
        """Before a request: take up what the directory knows now, forget what is old."""
        if self._directory.picture is not self.picture:
            self.picture = self._directory.picture
            self._found.clear()
            self._ours.clear()
        now = self._clock()
        if len(self.young) >= self._settings.cached_series or now - self._rotated_at >= ROTATE_SECONDS:
            self._old, self.young, self._rotated_at = self.young, {}, now

    @property
    def remembered(self) -> int:
        """How many label sets are held."""
        return len(self.young) + len(self._old)

    def entry(self, block: bytes) -> Entry:
        """The entry of a label set. Raises WireError or RefusedSeries."""
        known = self.young.get(block) or self._old.get(block)
        if known is None or (known.picture is not self.picture and self._find(known.keys) is not known.pod):
            known = self._make(block)
        elif known.picture is not self.picture:
            known = known._replace(picture=self.picture)
        self.young[block] = known
        return known

    def labels(self, block: bytes) -> dict[str, str]:
        """The labels as they came; for the debug route."""
        return {label.name: label.value for label in self._reader.read(block)}

    def _find(self, keys: Keys) -> Pod | None:
        if not keys:
            return None
        try:
            return self._found[keys]
        except KeyError:
            pod = self._found[keys] = self._finder.find(keys, self.picture)
            return pod

    def _make(self, block: bytes) -> Entry:
        read = self._reader.read(block)
        labels = checked(read)
        values = {label[0]: label[1] for label in labels}
        keys = self._finder.keys(values)
        pod = self._find(keys)
        copies = self._copies(labels, pod) if self._settings.copies != "none" else ()
        prefix: bytes | None = None
        if self._settings.copies != "only":
            # What stays as it came shares its memory with the key.
            same = pod is None and labels is read
            prefix = block if same else join(replaced(labels, self._labels_of(pod)))
        negative = self._watches(values["__name__"])
        reason = "" if prefix is not None or copies else ("no_workload_found" if pod else "missing_pod_info")
        quick = prefix is not None and not negative and not copies and len(prefix) <= LONGEST_QUICK_PREFIX
        return Entry(self.picture, prefix, quick, int(pod is None), negative, copies, reason, keys, pod)

    def _labels_of(self, pod: Pod | None) -> list[Label]:
        """What a series of this pod gets; made once for each pod of a picture."""
        if pod is None:
            return []
        known = self._ours.get(id(pod))
        if known is None:
            workload = workload_of(pod, self._settings.workload)
            known = _pod_labels(pod)
            if workload is not None:
                known += _workload_labels(workload.name, workload.uid)
            self._ours[id(pod)] = known
        return known

    def _copies(self, labels: list[Label], pod: Pod | None) -> tuple[bytes, ...]:
        """One label set for each workload of the pod, its name prefixed."""
        if pod is None:
            return ()
        renamed = [
            make_label("__name__", COPY_PREFIX + label.value) if label.name == "__name__" else label for label in labels
        ]
        return tuple(
            join(replaced(renamed, [*_pod_labels(pod), *_workload_labels(workload.name, workload.uid)]))
            for workload in pod.workloads
        )

    def _watches(self, name: str) -> bool:
        """Whether negative samples of this metric are dropped."""
        known = self._negative_names.get(name)
        if known is None:
            if len(self._negative_names) > 10_000:
                self._negative_names.clear()
            known = self._negative_names[name] = any(glob.match(name) for glob in self._negative)
        return known


def replaced(labels: list[Label], ours: list[Label]) -> list[Label]:
    """Labels with ours instead of those of the same names, sorted by name."""
    names = {label[0] for label in ours}
    if not names.isdisjoint([label[0] for label in labels]):
        labels = [label for label in labels if label[0] not in names]
    # Names are unique, so that nothing but names is compared.
    return sorted([*labels, *ours])


def join(labels: list[Label]) -> bytes:
    """Labels as the fields of a TimeSeries."""
    return b"".join([label[2] for label in labels])


def _pod_labels(pod: Pod) -> list[Label]:
    ours = [make_label("pod_name", pod.name)]
    return [*ours, make_label("pod_uid", pod.uid)] if pod.uid else ours


def _workload_labels(name: str, uid: str) -> list[Label]:
    return [make_label("workload_name", name or uid), make_label("workload_uid", uid)]
