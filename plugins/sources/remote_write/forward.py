"""The hot path: one walk over the bytes of a request of remote write 1.0.

`forward` takes series after series: its label block, the entry of the label-set table, the enriched labels and the
samples' bytes. Everything unusual is left to the generic parser, one series at a time.

This file runs as it is. Where the build has a C compiler, Cython compiles it with the types of `forward.pxd`
(`forms.py` chooses). Both forms only index and slice `bytes`, which checks every access: no damaged body can make it
read past the end. Values are never touched, so that every kind of NaN keeps its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from lens_core.plugin_api.protobuf import varint

if TYPE_CHECKING:
    from lens_core import Pod

    from .enriching import Enricher
    from .finding import Keys
    from .generic_parser import ForwardedBatch, GenericParser

# The labels that a pod gives to its series, in two pieces; the pod, and the keys that it was found by.
PodLabels: TypeAlias = "tuple[bytes, bytes, Pod | None, Keys]"
# Of a label set's names: each encoded with the tag behind it, and whether such a label may tell the pod; then indices:
# of the metric's name, and where the labels of a pod and of its workload belong.
Layout: TypeAlias = "tuple[list[bytes], list[bool], int, int, int]"

SERIES_TAG = LABEL_TAG = 0x0A
SAMPLE_TAG = 0x12
VALUE_TAG = 0x09
TIMESTAMP_TAG = 0x10
_HEADS = [b"\x0a" + varint(size) for size in range(4096)]
_SIGNATURE_BITS = 0xFFFFFFFFFFFF
_MARKS_PER_KEY = 32
# What an entry takes beside its bytes, about.
_ENTRY_BYTES = 400
_MEMO_ENTRIES = 50_000
# Larger ones are parsed every time, so that the memory of the caches is bounded.
_MEMO_ITEM_BYTES = 1024
_LARGEST_ENTRY_BYTES = 64 * 1024


class LabelSet:
    """The entry of one label set, valid for one epoch of the directory.

    `received` are the label bytes as they came, `forwarded` as they go on (None: only copies do), `copies` the labels
    of further series. `negative`: negative samples are dropped; `reason`: why nothing of it is forwarded. `pod` was
    found by `keys`. `place` is its index among the entries; -1 if it is not stored.
    """

    __slots__ = ("copies", "epoch", "forwarded", "keys", "negative", "place", "pod", "reason", "received")

    def __init__(self) -> None:
        self.received = b""
        self.forwarded: bytes | None = None
        self.copies: tuple[bytes, ...] = ()
        self.keys: Keys = ()
        self.pod: Pod | None = None
        self.negative = False
        self.reason = ""
        self.epoch = 0
        self.place = -1


class LabelSets:
    """The label-set table, limited in entries and in bytes.

    A table that is full or ten minutes old is cleared: to make the entries anew takes less than to keep them in the
    order of their use. A label set is stored when it comes for the second time (a Bloom filter tells), because most of
    what churns comes once.
    """

    def __init__(self, enricher: Enricher, limit: int, clear_seconds: float, clock: Callable[[], float]) -> None:
        self._enricher = enricher
        self._limit = limit
        self._limit_bytes = limit * 1024
        self._clear_seconds = clear_seconds
        self._clock = clock
        self._entries: dict[bytes, LabelSet] = {}
        # The same as they came: senders repeat their order, so the next series is mostly the next entry.
        self._order: list[LabelSet] = []
        self._clear()
        self._marks = bytearray(1 << (limit * _MARKS_PER_KEY // 8 - 1).bit_length())
        self._marked = 0
        self._epoch = 0
        self._layouts: dict[int, Layout] = {}
        self._pod_labels: dict[bytes, PodLabels] = {}
        self._watched: dict[bytes, bool] = {}

    def __len__(self) -> int:
        return len(self._order)

    def begin(self) -> None:
        """Take up what the directory knows now, and clear an old table; before every portion of series."""
        epoch: int = self._enricher.refresh()
        if epoch != self._epoch:
            self._epoch = epoch
            self._pod_labels.clear()
        if self._clock() - self._cleared_at >= self._clear_seconds:
            self._clear()

    def find_or_make(self, block: bytes) -> LabelSet | None:
        """The entry of a label set; None if the generic parser has to say what is wrong with it."""
        stored = self._entries.get(block)
        if stored is not None:
            if stored.epoch != self._epoch and self._enricher.pod(stored.keys) is stored.pod:
                stored.epoch = self._epoch
            if stored.epoch == self._epoch:
                return stored
        entry = self._make_by_layout(block)
        if entry is None:
            entry = self._enricher.make(block, self.learn_layout)
            if entry is None:
                return None
        entry.epoch = self._epoch
        if stored is not None:
            entry.place = stored.place
            self._entries[block] = self._order[entry.place] = entry
        elif self._came_before(block):
            self._store(entry)
        return entry

    def learn_layout(self, block: bytes, layout: Layout) -> None:
        """Make entries of label sets that are laid out like this one without the generic parser from now on."""
        if len(block) <= _MEMO_ITEM_BYTES and (signature := self._signature(block)) >= 0:
            if len(self._layouts) >= _MEMO_ENTRIES:
                self._layouts.clear()
            self._layouts[signature] = layout

    def _store(self, entry: LabelSet) -> None:
        size = _ENTRY_BYTES + len(entry.received) + sum([len(block) for block in entry.copies])
        if entry.forwarded is not None and entry.forwarded is not entry.received:
            size += len(entry.forwarded)
        if size > _LARGEST_ENTRY_BYTES:
            return
        if len(self._order) >= self._limit or self._bytes + size > self._limit_bytes:
            self._clear()
        entry.place = len(self._order)
        self._order.append(entry)
        self._entries[entry.received] = entry
        self._bytes += size

    def _clear(self) -> None:
        self._entries.clear()
        self._order = []
        self._bytes = 0
        self._cleared_at = self._clock()

    def _came_before(self, block: bytes) -> bool:
        """Whether a label set came before (wrong in less than one of thirty cases); from now on it did."""
        number = hash(block)
        place = number >> 6 & len(self._marks) - 1
        marks = 1 << (number & 7) | 1 << (number >> 3 & 7)
        if self._marks[place] & marks == marks:
            return True
        if self._marked >= self._limit:
            self._marks = bytearray(len(self._marks))
            self._marked = 0
        self._marks[place] |= marks
        self._marked += 1
        return False

    def _signature(self, block: bytes) -> int:
        """A number for the names of short labels, which different names may share; -1 for other labels."""
        size = len(block)
        if not block.isascii():
            return -1
        place = signature = 0
        while place < size:
            # Tag and length of the label, tag and length of its name, the name.
            if place + 4 >= size:
                return -1
            length = block[place + 3]
            last = place + 3 + length
            if last >= size:
                return -1
            mixed = block[place + 4] << 24 | block[last - length // 2] << 16 | block[last] << 8 | length
            signature = (signature * 1000003 ^ mixed) & _SIGNATURE_BITS
            place += 2 + block[place + 1]
        return signature

    def _make_by_layout(self, block: bytes) -> LabelSet | None:
        """An entry of a label set whose names are known and whose encoding is the usual one; else None."""
        layout = self._layouts.get(self._signature(block))
        if layout is None:
            return None
        starts, tells, name_index, pod_index, workload_index = layout
        size = len(block)
        place = 0
        pod_at = workload_at = size
        telling_from = -1
        telling = name = b""
        for index, start in enumerate(starts):
            value = place + 2 + len(start)
            # The name is the same, and the value is not empty and ends where the label ends.
            if value >= size or not block.startswith(start, place + 2) or not block[value]:
                return None
            stop = value + 1 + block[value]
            if stop != place + 2 + block[place + 1]:
                return None
            if index == pod_index:
                pod_at = place
            if index == workload_index:
                workload_at = place
            if index == name_index:
                name = _slice(block, value + 1, stop)
            if not tells[index]:
                if telling_from >= 0:
                    telling += _slice(block, telling_from, place)
                telling_from = -1
            elif telling_from < 0:
                telling_from = place
            place = stop
        if place != size:
            return None
        if telling_from >= 0:
            telling += _slice(block, telling_from, size)
        pod_labels, workload_labels, pod, keys = self._pod_labels_by(telling)
        entry = LabelSet()
        entry.received = entry.forwarded = block
        entry.keys = keys
        entry.pod = pod
        entry.negative = self._watches(name)
        if pod is not None:
            before, between = _slice(block, 0, pod_at), _slice(block, pod_at, workload_at)
            after = _slice(block, workload_at, size)
            entry.forwarded = b"".join((before, pod_labels, between, workload_labels, after))
        return entry

    def _pod_labels_by(self, telling: bytes) -> PodLabels:
        """The labels that a series gets by those of its own that tell its pod."""
        pod_labels = self._pod_labels.get(telling)
        if pod_labels is None:
            pod_labels = self._enricher.pod_labels(telling)
            if len(self._pod_labels) >= _MEMO_ENTRIES:
                self._pod_labels.clear()
            if len(telling) <= _MEMO_ITEM_BYTES:
                self._pod_labels[telling] = pod_labels
        return pod_labels

    def _watches(self, name: bytes) -> bool:
        """Whether negative samples of this metric are dropped."""
        watched = self._watched.get(name)
        if watched is None:
            watched = self._enricher.watches(name.decode())
            if len(self._watched) >= _MEMO_ENTRIES:
                self._watched.clear()
            self._watched[name] = watched
        return watched


def forward(body: bytes, place: int, count: int, table: LabelSets, parser: GenericParser, batch: ForwardedBatch) -> int:
    """Forward at most `count` series from a place; return where the next one begins, or what is not a series.

    Raises WireError where a series is damaged.
    """
    size = len(body)
    pieces = batch.pieces
    done = series = samples = unattached = known = 0
    expected = 0
    # Series that go on as they came are copied together: from here.
    copied_from = place
    while done < count and place < size and body[place] == SERIES_TAG:
        start = _after_length(body, place + 1, size)
        if start < 0:
            break
        stop = start + _length(body, place + 1, start)
        if stop > size:
            break
        done += 1
        entry = None
        rest = start
        # Mostly it is the label set that followed the last time.
        if expected < len(table._order):
            entry = table._order[expected]
            rest = start + len(entry.received)
            if (
                rest >= stop
                or body[rest] == LABEL_TAG
                or entry.epoch != table._epoch
                or not body.startswith(entry.received, start)
            ):
                entry = None
        if entry is None:
            rest = _end_of_labels(body, start, stop)
            if rest > start:
                entry = table.find_or_make(_slice(body, start, rest))
        found = 0
        if entry is not None and not entry.reason:
            found = _usual_samples(body, rest, stop, entry.negative)
        if entry is None or not found or entry.forwarded is not entry.received or entry.copies:
            if copied_from < place:
                pieces.append(_slice(body, copied_from, place))
            copied_from = stop
        if entry is None or not found:
            parser.parse(_slice(body, start, stop), entry, batch)
        else:
            expected = entry.place + 1
            series += 1
            samples += found
            unattached += entry.pod is None
            known += entry.place >= 0
            if copied_from == stop:
                sample = _slice(body, rest, stop)
                if entry.forwarded is not None:
                    pieces.append(_head(len(entry.forwarded) + len(sample)))
                    pieces.append(entry.forwarded)
                    pieces.append(sample)
                for labels in entry.copies:
                    pieces.append(_head(len(labels) + len(sample)))
                    pieces.append(labels)
                    pieces.append(sample)
        place = stop
    if copied_from < place:
        pieces.append(_slice(body, copied_from, place))
    batch.received += done
    batch.known += known
    batch.series += series
    batch.samples += samples
    batch.unattached += unattached
    return place


def _slice(data: bytes, start: int, stop: int) -> bytes:
    """A part of bytes; checked here, because the compiled form copies from a pointer."""
    if not 0 <= start <= stop <= len(data):
        raise IndexError("a part that is not within the bytes")
    pointer = data
    return pointer[start:stop]


def _head(size: int) -> bytes:
    """Tag and length of a series."""
    return _HEADS[size] if size < 4096 else b"\x0a" + varint(size)


def _after_length(body: bytes, place: int, size: int) -> int:
    """Where the length that is written at a place ends; -1 if it has more than four bytes or is cut off."""
    end = min(place + 4, size)
    while place < end:
        if body[place] < 0x80:
            return place + 1
        place += 1
    return -1


def _length(body: bytes, place: int, after: int) -> int:
    """The length that is written from a place to another."""
    length = 0
    while after > place:
        after -= 1
        length = length << 7 | body[after] & 0x7F
    return length


def _end_of_labels(body: bytes, place: int, stop: int) -> int:
    """Where the labels at the beginning of a series end; -1 if they are damaged."""
    while place < stop and body[place] == LABEL_TAG:
        start = _after_length(body, place + 1, stop)
        if start < 0:
            return -1
        place = start + _length(body, place + 1, start)
        if place > stop:
            return -1
    return place


def _usual_samples(body: bytes, place: int, stop: int, negative: bool) -> int:
    """How many samples follow the labels; 0 if there is something else, too, or with `negative`, a negative value."""
    count = 0
    while place < stop:
        if stop - place < 2 or body[place] != SAMPLE_TAG:
            return 0
        end = place + 2 + body[place + 1]
        if end > stop or body[place + 1] >= 0x80:
            return 0
        place += 2
        # Value and timestamp; proto3 leaves out what is 0.
        if place < end and body[place] == VALUE_TAG:
            if end - place < 9 or (negative and body[place + 8] >= 0x80):
                return 0
            place += 9
        if place < end:
            if body[place] != TIMESTAMP_TAG or not 2 <= end - place <= 11 or body[end - 1] >= 0x80:
                return 0
            place += 1
            while place < end - 1:
                if body[place] < 0x80:
                    return 0
                place += 1
            place = end
        count += 1
    return count
