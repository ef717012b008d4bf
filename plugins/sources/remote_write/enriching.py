"""From the label fields of a series to those that go on, remembered, because senders repeat them with every sample."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Callable

from lens_core.directory.directory import Directory

from .attaching import NO_POD, Attached, Pods, Shape, Shapes, join, replaced
from .entry import Entry, head_of
from .finding import Keys, PodFinder
from .labels import METRIC_NAME, Label, LabelReader, checked, make_label
from .samples import VALUE_SIZE, VALUE_TAGS, ZERO_TAIL
from .seen import Seen
from .settings import RemoteWriteSettings
from .templates import Template, Templates

ROTATE_SECONDS = 600.0
COPY_PREFIX = "workload_"
_REMEMBERED_FIELDS = 50_000


class Enricher:
    """Two generations of entries: what was not used since the last rotation but one is forgotten.

    Rotates when a generation is full and at least every ten minutes. When the directory changes, an entry whose pod
    is still the same costs a look-up, the others are made anew. A label set is remembered when it comes again: most of
    what churns comes once.
    """

    def __init__(
        self, settings: RemoteWriteSettings, directory: Directory, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._clock = clock
        self._finder = PodFinder(settings)
        self._reader = LabelReader(self._finder.telling)
        self._negative = [re.compile(fnmatch.translate(glob), re.IGNORECASE) for glob in settings.drop_negative]
        self._negative_names: dict[str, bool] = {}
        self._picture = directory.picture
        self._shapes = Shapes()
        self._pods = Pods(settings.workload)
        self._found: dict[Keys, int] = {(): NO_POD}
        self.seen = Seen(settings.cached_series)
        self._old: dict[bytes, Entry] = {}
        self._rotated_at = clock()
        self.young: dict[bytes, Entry] = {}
        self.epoch = 1
        self.templates = Templates()
        # By the labels that a template cuts out, as of now.
        self.attached: dict[bytes, Attached] = {}

    def begin(self) -> None:
        """Before a request: take up what the directory knows now, forget what is old."""
        if self._directory.picture is not self._picture:
            self._picture = self._directory.picture
            self.epoch += 1
            self._found = {(): NO_POD}
            self.attached.clear()
            self._pods.keep(self._picture.pods.values())
        now = self._clock()
        if len(self.young) >= self._settings.cached_series or now - self._rotated_at >= ROTATE_SECONDS:
            for entry in self._old.values():
                entry.next = None
            self._old, self.young, self._rotated_at = self.young, {}, now
            # What is used from now on passes by `known` once, which takes it over into the young generation.
            self.epoch += 1

    @property
    def remembered(self) -> int:
        """How many label sets are held."""
        return len(self.young) + len(self._old)

    def known(self, block: bytes) -> Entry | None:
        """The entry of a label set that is remembered."""
        came = block + VALUE_TAGS
        entry = self.young.get(came) or self._old.get(came)
        if entry is None:
            return None
        if entry.epoch != self.epoch:
            if self.pod(entry.keys) != entry.pod:
                self._fill(entry)
            entry.epoch = self.epoch
        self.young[entry.came] = entry
        return entry

    def remember(self, block: bytes) -> Entry:
        """The entry of a label set, remembered from now on. Raises WireError or RefusedSeries."""
        entry = self.known(block)
        if entry is None:
            entry = self.make(block)
            self.young[entry.came] = entry
        return entry

    def entry(self, block: bytes) -> Entry:
        """The entry of a label set, remembered if it comes again. Raises WireError or RefusedSeries."""
        return self.known(block) or (self.remember(block) if self.seen.again(block) else self.make(block))

    def make(self, block: bytes) -> Entry:
        """An entry that is not remembered. Raises WireError or RefusedSeries."""
        return self._fill(Entry(came=block + VALUE_TAGS))

    def attach(self, told: bytes) -> Attached:
        """What a series gets by the labels that its template cuts out; remembered in `attached`."""
        if len(self.attached) >= _REMEMBERED_FIELDS:
            self.attached.clear()
        keys = self._finder.keys([label for label in self._reader.read(told) if label[3]])
        attached = self.attached[told] = self._pods.attached(self.pod(keys), keys)
        return attached

    def labels(self, block: bytes) -> dict[str, str]:
        """The labels as they came; for the debug route."""
        return {label[0]: label[1] for label in self._reader.read(block)}

    def pod(self, keys: Keys) -> int:
        """The number of the pod that the directory knows by these keys."""
        try:
            return self._found[keys]
        except KeyError:
            number = self._found[keys] = self._pods.number(self._finder.find(keys, self._picture))
            return number

    def watches(self, name: str) -> bool:
        """Whether negative samples of this metric are dropped."""
        known = self._negative_names.get(name)
        if known is None:
            if len(self._negative_names) > 10_000:
                self._negative_names.clear()
            known = self._negative_names[name] = any(glob.match(name) for glob in self._negative)
        return known

    def _fill(self, entry: Entry) -> Entry:
        """Fill in an entry. Raises WireError or RefusedSeries."""
        template = self.templates.find(entry.block, ZERO_TAIL.example)
        name = self._fill_by_reading(entry) if template is None else self._fill_by_template(entry, template)
        entry.unattached = int(entry.pod == NO_POD)
        entry.negative = self.watches(name)
        entry.below = 0 if entry.goes is None or entry.copies else 0x80 if entry.negative else 0x100
        entry.head = b"" if entry.goes is None else head_of(len(entry.goes) - len(VALUE_TAGS) + VALUE_SIZE)
        entry.epoch = self.epoch
        return entry

    def _fill_by_template(self, entry: Entry, template: Template) -> str:
        """Labels, keys and pod; the metric's name."""
        block = entry.block
        before, middle, after, told = template.cut(block)
        attached = self.attached.get(told) or self.attach(told)
        entry.keys, entry.pod = attached.keys, attached.number
        entry.goes = entry.came
        if attached.number != NO_POD:
            entry.goes = b"".join((before, attached.pod, middle, attached.workload, after, VALUE_TAGS))
        return block[template.name].decode()

    def _fill_by_reading(self, entry: Entry) -> str:
        """The same for a label set of an unknown kind, and copies. Raises WireError or RefusedSeries."""
        labels = self._reader.read(entry.block)
        marked = [label for label in labels if label[3]]
        shape = self._shapes.of(tuple([label[0] for label in labels]))
        if shape is None or any(not label[1] for label in marked):
            name = self._fill_slowly(entry, labels)
        else:
            name = labels[shape.name][1]
            self._fill_quickly(entry, labels, marked, shape)
        if self._settings.copies != "none":
            self._make_copies(entry, labels, name)
        return name

    def _fill_quickly(self, entry: Entry, labels: list[Label], marked: list[Label], shape: Shape) -> None:
        """For labels of a usual shape: in order, complete, and none of ours."""
        entry.keys = self._finder.keys(marked) if marked else ()
        entry.pod = self.pod(entry.keys)
        entry.goes = entry.came
        if entry.pod != NO_POD:
            pieces = [label[2] for label in labels]
            self._pods.insert(entry.pod, pieces, shape)
            entry.goes = b"".join((*pieces, VALUE_TAGS))
        if self._settings.copies == "none":
            self.templates.learn(entry.block, labels, shape)

    def _fill_slowly(self, entry: Entry, read: list[Label]) -> str:
        """For labels that must be put in order first, or have some of ours; the metric's name."""
        labels = checked(read)
        telling = [label for label in labels if label[3]]
        entry.keys = self._finder.keys(telling) if telling else ()
        entry.pod = self.pod(entry.keys)
        entry.goes = join(replaced(labels, self._pods.labels(entry.pod))) + VALUE_TAGS
        return next(label[1] for label in labels if label[0] == METRIC_NAME)

    def _make_copies(self, entry: Entry, labels: list[Label], name: str) -> None:
        """One label set for each workload of the pod, its name prefixed."""
        renamed = [label for label in checked(labels) if label[0] != METRIC_NAME]
        renamed.append(make_label(METRIC_NAME, COPY_PREFIX + name))
        entry.copies = tuple(join(replaced(renamed, ours)) for ours in self._pods.copies(entry.pod))
        if self._settings.copies == "only":
            entry.goes = None
            entry.reason = "" if entry.copies else "no_workload_found" if entry.pod else "missing_pod_info"
