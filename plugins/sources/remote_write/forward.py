"""The hot path: one walk over the bytes of a request of remote write 1.0.

`forward` takes series after series: its label block, the entry of the label-set table, the enriched labels and the
samples' bytes. Label sets that are new are forwarded without an entry where their layout is known: the same names in
the usual encoding, so that it is clear where the labels of a pod belong. Everything unusual is left to the generic
parser, one series at a time.

This file runs as it is. Where the build has a C compiler, Cython compiles it with the types of `forward.pxd`
(`forms.py` chooses). Both forms index and slice `bytes`, which checks every access; the three functions that use
pointers where they are compiled check first. No damaged body can make it read past the end. Values are never touched,
so that every kind of NaN keeps its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lens_core.plugin_api.protobuf import varint

if TYPE_CHECKING:
    from lens_core import Pod

    from .finding import Keys
    from .roles import Batch, LabelSource, Layout, PodLabels, SeriesParser

    def memcpy(target: object, source: object, size: int) -> None:
        """C's own; only the compiled form calls it."""


SERIES_TAG = LABEL_TAG = 0x0A
SAMPLE_TAG = 0x12
VALUE_TAG = 0x09
TIMESTAMP_TAG = 0x10
_HEADS = [b"\x0a" + varint(size) for size in range(4096)]
_COMPILED = __name__.endswith("._forward")
_SIGNATURE_BITS = 0xFFFFFFFFFFFF
_LOOKS_BEHIND_KNOWN = 64
_LOOK_EVERY = 32
# The approximate overhead of an entry beside its bytes.
_ENTRY_BYTES = 400
_MEMO_ENTRIES = 50_000
# Larger ones are parsed every time, so that the memory of the caches is bounded.
_MEMO_ITEM_BYTES = 1024
_LARGEST_ENTRY_BYTES = 64 * 1024


class LabelSet:
    """The entry of one label set, valid for one epoch of the directory.

    `received` are the label bytes as they came. They are forwarded with the labels of their pod before `pod_at` and of
    its workload before `workload_at`, or where that is -1, as `forwarded` (None: only copies are). `copies` are the
    labels of further series. `negative`: negative samples are dropped (-1: the metric's name tells it); `reason`: why
    nothing of it is forwarded. `pod` was found by `keys`. `next` is the entry that came after it the last time:
    senders repeat their order.
    """

    def __init__(self) -> None:
        self.received = b""
        self.forwarded: bytes | None = self.received
        self.pod_at = self.workload_at = -1
        self.pod_labels = self.workload_labels = b""
        self.copies: tuple[bytes, ...] = ()
        self.keys: Keys = ()
        self.pod: Pod | None = None
        self.negative = 0
        self.reason = ""
        self.epoch = 0
        self.is_stored = False
        self.next: LabelSet | None = None

    def forwarded_labels(self) -> bytes | None:
        """The labels that are forwarded."""
        if self.pod_at < 0:
            return self.forwarded
        before, between = self.received[: self.pod_at], self.received[self.pod_at : self.workload_at]
        return before + self.pod_labels + between + self.workload_labels + self.received[self.workload_at :]

    def matches(self, epoch: int, body: bytes, start: int, stop: int) -> bool:
        """Whether it is of this epoch and of the labels of a series."""
        rest = start + len(self.received)
        if rest >= stop or body[rest] == LABEL_TAG or self.epoch != epoch:
            return False
        return body.startswith(self.received, start)


class Output:
    """Bytes that are forwarded: the first `size` of a buffer that grows and is used again."""

    __slots__ = ("buffer", "size")

    def __init__(self) -> None:
        self.buffer = bytearray(64 * 1024)
        self.size = 0

    def append_bytes(self, data: bytes, start: int, stop: int) -> int:
        """Append a part of bytes; returns the size."""
        end = self.size + _check(data, start, stop)
        if end > len(self.buffer):
            self.buffer.extend(bytes(end))
        if _COMPILED:
            source, target = data, self.buffer
            memcpy(target + self.size, source + start, stop - start)  # type: ignore[operator]
        else:
            self.buffer[self.size : end] = data[start:stop]
        self.size = end
        return end

    def append_series(self, labels: bytes, data: bytes, start: int, stop: int) -> None:
        """Append a series of these labels and, as its samples, a part of bytes."""
        self.append_head(len(labels) + stop - start)
        self.append_bytes(labels, 0, len(labels))
        self.append_bytes(data, start, stop)

    def append_attached(self, entry: LabelSet, data: bytes, start: int, stop: int) -> None:
        """Append a series, a part of bytes that begins with its labels, with those of its pod."""
        pod_at, workload_at = start + entry.pod_at, start + entry.workload_at
        self.append_head(len(entry.pod_labels) + len(entry.workload_labels) + stop - start)
        self.append_bytes(data, start, pod_at)
        self.append_bytes(entry.pod_labels, 0, len(entry.pod_labels))
        self.append_bytes(data, pod_at, workload_at)
        self.append_bytes(entry.workload_labels, 0, len(entry.workload_labels))
        self.append_bytes(data, workload_at, stop)

    def append_head(self, size: int) -> None:
        """Append tag and length of a series."""
        head = _HEADS[size] if size < 4096 else b"\x0a" + varint(size)
        self.append_bytes(head, 0, len(head))


class LabelSets:
    """The label-set table, limited in entries and in bytes.

    A table that is full or ten minutes old is cleared: to make the entries anew takes less than to keep them in the
    order of their use. A label set is stored when it is looked up for the second time, because most of what churns
    comes once.
    """

    def __init__(self, enricher: LabelSource, limit: int, clear_seconds: float, clock: Callable[[], float]) -> None:
        self._enricher = enricher
        self._limit = limit
        self._limit_bytes = limit * 1024
        self._clear_seconds = clear_seconds
        self._clock = clock
        self._entries: dict[bytes, LabelSet] = {}
        self._clear()
        # The hashes of label sets that were looked up once.
        self._once: set[int] = set()
        self.epoch = 0
        # Behind so many new label sets in a row only each 32nd is looked up: senders send known ones together.
        self.looks = 8
        self._layouts: dict[int, Layout] = {}
        self._last_layout: Layout | None = None
        # Of the labels that were placed last: the entry in place of a stored one, the value of the metric's name, and
        # the labels that tell the pod.
        self.placed = LabelSet()
        self.placed.negative = -1
        self.name_from = self.name_to = 0
        self._telling = b""
        self._pod_labels: dict[bytes, PodLabels] = {}
        enricher.learn = self.learn_layout

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self) -> None:
        """Take up what the directory knows now, and clear an old table; before every portion of series."""
        epoch: int = self._enricher.refresh()
        if epoch != self.epoch:
            self.epoch = epoch
            self._pod_labels.clear()
        if self._clock() - self._cleared_at >= self._clear_seconds:
            self._clear()

    def find(self, body: bytes, start: int, stop: int) -> LabelSet | None:
        """The entry of the labels of a series; None if there is none yet, or if they are damaged or refused."""
        rest = _end_of_labels(body, start, stop)
        if rest <= start:
            return None
        block = _slice(body, start, rest)
        stored = self._entries.get(block)
        if stored is None:
            return self._remember_entry(block) if self._came_before(block) else None
        if stored.epoch != self.epoch and self._enricher.pod(stored.keys) is stored.pod:
            stored.epoch = self.epoch
        return stored if stored.epoch == self.epoch else self._remember_entry(block)

    def learn_layout(self, block: bytes, layout: Layout) -> None:
        """Forward label sets that are laid out like this one without the generic parser from now on."""
        if len(block) <= _MEMO_ITEM_BYTES and (signature := self._signature(block, 0, len(block))) >= 0:
            if len(self._layouts) >= _MEMO_ENTRIES:
                self._layouts.clear()
            self._layouts[signature] = layout

    def _remember_entry(self, block: bytes) -> LabelSet | None:
        """Make an entry, and store it in place of an older one if it is not too large."""
        entry = self._make_entry(block)
        if entry is None:
            return None
        entry.epoch = self.epoch
        size = _ENTRY_BYTES + len(block) + sum([len(copy) for copy in entry.copies])
        if entry.forwarded is not None and entry.forwarded is not block:
            size += len(entry.forwarded)
        if size <= _LARGEST_ENTRY_BYTES:
            if len(self._entries) >= self._limit or self._bytes + size > self._limit_bytes:
                self._clear()
            self._bytes += 0 if block in self._entries else size
            entry.is_stored = True
            self._entries[block] = entry
        return entry

    def _make_entry(self, block: bytes) -> LabelSet | None:
        """An entry, by its layout where that is known; None for labels that are damaged or refused."""
        if self.place_labels(block, 0, len(block)) != len(block):
            made: LabelSet | None = self._enricher.make_label_set(block)
            return made
        placed = self.placed
        entry = LabelSet()
        entry.received = entry.forwarded = block
        entry.pod, entry.keys = placed.pod, placed.keys
        entry.pod_at, entry.workload_at = placed.pod_at, placed.workload_at
        entry.pod_labels, entry.workload_labels = placed.pod_labels, placed.workload_labels
        entry.negative = self.watches_placed(block)
        return entry

    def _clear(self) -> None:
        for entry in self._entries.values():
            entry.next = None
        self._entries.clear()
        self._bytes = 0
        self._cleared_at = self._clock()

    def _came_before(self, block: bytes) -> bool:
        """Whether a label set was looked up before; once it was, it is forgotten, because it is stored now."""
        number = hash(block)
        if number in self._once:
            self._once.discard(number)
            return True
        if len(self._once) >= self._limit:
            self._once.clear()
        self._once.add(number)
        return False

    def place_labels(self, body: bytes, start: int, stop: int) -> int:
        """Find out in `placed` where the labels of a series are and what its pod adds; where they end.

        -1 if their layout is not known, or if they are not ASCII, whose lengths are bytes and which is UTF-8.
        """
        rest = -1
        if self._last_layout is not None:
            rest = self._walk(self._last_layout, body, start, stop)
        if rest < 0:
            rest = _end_of_labels(body, start, stop)
            layout = self._layouts.get(self._signature(body, start, rest))
            if layout is None:
                return -1
            self._last_layout = layout
            rest = self._walk(layout, body, start, stop)
        if rest < 0 or not _is_ascii(body, start, rest):
            return -1
        self._place_pod()
        return rest

    def _signature(self, body: bytes, start: int, stop: int) -> int:
        """A number for the names of short labels, which different names may share; -1 for other labels."""
        place = start
        signature = 0
        while place < stop:
            # Tag and length of the label, tag and length of its name, the name.
            if place + 4 >= stop:
                return -1
            length = body[place + 3]
            last = place + 3 + length
            if last >= stop:
                return -1
            # Small enough for 32 bits, whatever the bytes are.
            mixed = body[place + 4] << 21 | body[last - length // 2] << 14 | body[last] << 7 | length
            signature = (signature * 1000003 ^ mixed) & _SIGNATURE_BITS
            place += 2 + body[place + 1]
        return signature

    def _walk(self, layout: Layout, body: bytes, place: int, stop: int) -> int:
        """Find the end of labels that are laid out so; -1 for others. Notes their places, if they are ASCII."""
        starts, tells, name_index, pod_index, workload_index = layout
        labels_from = place
        pod_at = workload_at = telling_from = -1
        telling = b""
        for index, start in enumerate(starts):
            value = place + 2 + len(start)
            # The name is the same, and the value is not empty and ends where the label ends.
            if value >= stop or body[place] != LABEL_TAG or not body.startswith(start, place + 2) or not body[value]:
                return -1
            end = value + 1 + body[value]
            if end > stop or end != place + 2 + body[place + 1]:
                return -1
            if index == pod_index:
                pod_at = place
            if index == workload_index:
                workload_at = place
            if index == name_index:
                self.name_from = value + 1
                self.name_to = end
            if not tells[index]:
                if telling_from >= 0:
                    telling += _slice(body, telling_from, place)
                telling_from = -1
            elif telling_from < 0:
                telling_from = place
            place = end
        if place < stop and body[place] == LABEL_TAG:
            return -1
        if telling_from >= 0:
            telling += _slice(body, telling_from, place)
        self._telling = telling
        self.placed.pod_at = (place if pod_at < 0 else pod_at) - labels_from
        self.placed.workload_at = (place if workload_at < 0 else workload_at) - labels_from
        return place

    def watches_placed(self, body: bytes) -> bool:
        """Whether negative samples of the series are dropped whose labels were placed."""
        watched: bool = self._enricher.watches(_slice(body, self.name_from, self.name_to).decode())
        return watched

    def _place_pod(self) -> None:
        """Note what the series gets that was placed, by those of its labels that tell its pod."""
        telling, placed = self._telling, self.placed
        pod_labels = self._pod_labels.get(telling)
        if pod_labels is None:
            pod_labels = self._enricher.pod_labels(telling)
            if len(self._pod_labels) >= _MEMO_ENTRIES:
                self._pod_labels.clear()
            if len(telling) <= _MEMO_ITEM_BYTES:
                self._pod_labels[telling] = pod_labels
        placed.pod_labels, placed.workload_labels, placed.pod, placed.keys = pod_labels
        if placed.pod is None:
            placed.pod_at = -1


def forward(body: bytes, place: int, count: int, table: LabelSets, parser: SeriesParser, batch: Batch) -> int:
    """Forward at most `count` series from a place; return where the next one begins, or what is not a series.

    Raises WireError where a series is damaged.
    """
    size = len(body)
    output = batch.output
    done = series = samples = unattached = known = 0
    looks = table.looks
    previous: LabelSet | None = None
    while done < count and place < size and body[place] == SERIES_TAG:
        start = _after_length(body, place + 1, size)
        if start < 0:
            break
        stop = start + _length(body, place + 1, start)
        if stop > size:
            break
        done += 1
        found = 0
        # Mostly it is the label set that followed the last time.
        entry = None if previous is None else previous.next
        if entry is not None and not entry.matches(table.epoch, body, start, stop):
            entry = None
        if entry is None and (looks or not done % _LOOK_EVERY):
            looks -= looks > 0
            entry = table.find(body, start, stop)
        if entry is None:
            rest = table.place_labels(body, start, stop)
            if rest >= 0:
                entry = table.placed
        else:
            rest = start + len(entry.received)
            if entry.is_stored:
                if previous is not None:
                    previous.next = entry
                previous = entry
                looks = _LOOKS_BEHIND_KNOWN
        if entry is not None:
            found = _forward_by(entry, table, body, place, start, rest, stop, output)
            unattached += found > 0 and entry.pod is None
            known += found > 0 and entry.is_stored
        if found:
            series += 1
            samples += found
        else:
            parser.parse(_slice(body, start, stop), entry, batch)
        place = stop
    batch.received += done
    batch.known += known
    batch.series += series
    batch.samples += samples
    batch.unattached += unattached
    return place


def _forward_by(
    entry: LabelSet, table: LabelSets, body: bytes, place: int, start: int, rest: int, stop: int, output: Output
) -> int:
    """Forward a series with the labels of an entry; returns its number of samples, 0 if it is not a usual one."""
    if entry.reason:
        return 0
    found = _usual_samples(body, rest, stop)
    if found < 0 and not (table.watches_placed(body) if entry.negative < 0 else entry.negative):
        found = -found
    if found <= 0:
        return 0
    if entry.pod_at >= 0:
        output.append_attached(entry, body, start, stop)
    elif entry.forwarded is entry.received:
        output.append_bytes(body, place, stop)
    elif entry.forwarded is not None:
        output.append_series(entry.forwarded, body, rest, stop)
    for labels in entry.copies:
        output.append_series(labels, body, rest, stop)
    return found


def _check(data: bytes, start: int, stop: int) -> int:
    """The size of a part of bytes; raises IndexError if it is not within them: pointers know no end."""
    if not 0 <= start <= stop <= len(data):
        raise IndexError("a part that is not within the bytes")
    return stop - start


def _slice(data: bytes, start: int, stop: int) -> bytes:
    """A part of bytes."""
    _check(data, start, stop)
    pointer = data
    return pointer[start:stop]


def _is_ascii(data: bytes, start: int, stop: int) -> bool:
    """Whether a part of bytes is ASCII."""
    _check(data, start, stop)
    if not _COMPILED:
        return data[start:stop].isascii()
    pointer = data
    bits = 0
    for place in range(start, stop):
        bits |= pointer[place]
    return bits < 0x80


def _after_length(body: bytes, place: int, size: int) -> int:
    """Return where the length that is written at a place ends; -1 if it has more than four bytes or is cut off."""
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
    """Find the end of the labels at the beginning of a series; -1 if they are damaged."""
    while place < stop and body[place] == LABEL_TAG:
        start = _after_length(body, place + 1, stop)
        if start < 0:
            return -1
        place = start + _length(body, place + 1, start)
        if place > stop:
            return -1
    return place


def _usual_samples(body: bytes, place: int, stop: int) -> int:
    """Count the samples after the labels, as a negative number if a value is negative; 0 if more follows."""
    count = 0
    sign = 1
    while place < stop:
        if stop - place < 2 or body[place] != SAMPLE_TAG:
            return 0
        end = place + 2 + body[place + 1]
        if end > stop or body[place + 1] >= 0x80:
            return 0
        place += 2
        # Value and timestamp; proto3 leaves out what is 0.
        if place < end and body[place] == VALUE_TAG:
            if end - place < 9:
                return 0
            if body[place + 8] >= 0x80:
                sign = -1
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
    return count * sign
