"""Counters of devices among the series that pass: DCGM's and AMD's exporters send the errors of GPUs this way.

Most requests have none: where no exporter of GPUs was ever heard of they cost nothing, elsewhere a search for a word.
Of those that have some, the series that hold one of the names are copied, and read once the request is safe.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lens_core import Event
from lens_core.plugin_api.protobuf import WireError, fields

from ...device_errors import CounterWatch, Reading, event_of, kind_of_counter
from .labels import METRIC_NAME, RefusedSeries, read_labels
from .samples import split_labels

SOURCE = "remote_write"
# By how the names of an exporter's metrics begin, the words in those that matter.
_NO_WORDS: frozenset[bytes] = frozenset()
_AMD = frozenset({b"gpu_ecc_", b"pcie_replay_count"})
_EXPORTERS = {"DCGM_": frozenset({b"DCGM_FI_DEV_"}), "gpu_": _AMD, "amd_": _AMD, "pcie_": _AMD}
_NAMES = re.compile(
    rb"DCGM_FI_DEV_(?:XID_ERRORS|ECC_[SD]BE_|ROW_REMAP_FAILURE|UNCORRECTABLE_REMAPPED_ROWS|PCIE_REPLAY_COUNTER|NVLINK_|CLOCK)"
    rb"|gpu_ecc_(?:un)?correct_total|pcie_replay_count"
)
_DEVICE_LABELS = ("pci_bus_id", "UUID", "uuid", "gpu", "gpu_id", "device")
_SERIES_TAG = 0x0A
_MEMO_SERIES = 100_000
_COPY_PREFIX = "workload_"
# The metric, the device, the node.
_Place = tuple[str, str, str]


def words_of_exporter(name: str) -> frozenset[bytes]:
    """The words to look for once a metric of this name has come; none for most metrics."""
    return _EXPORTERS.get(name[: name.find("_") + 1], _NO_WORDS)


def cut_counters(message: memoryview, words: Iterable[bytes]) -> list[bytes]:
    """Copy the series of a message (remote write 1.0, as it is forwarded) in which a counter's name stands.

    Only messages that hold one of the `words` are looked through.
    """
    body = message.obj
    if not isinstance(body, bytearray) or not any(body.find(word, 0, len(message)) >= 0 for word in words):
        return []
    found = _NAMES.finditer(message)
    match = next(found, None)
    copied: list[bytes] = []
    place, size = 0, len(message)
    while match is not None and place < size and message[place] == _SERIES_TAG:
        length, start = _read_length(message, place + 1)
        place = start + length
        if match.start() < place:
            copied.append(bytes(message[start:place]))
            while match is not None and match.start() < place:
                match = next(found, None)
    return copied


def _read_length(message: memoryview, place: int) -> tuple[int, int]:
    """The length of a series and where it begins; most take one or two bytes."""
    length, shift = 0, 0
    while True:
        byte = message[place]
        place += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length, place
        shift += 7


class DeviceCounters:
    """Reads counters of devices; `node_labels` are those that may name the node, the first that is there counts."""

    def __init__(self, node_labels: Sequence[str]) -> None:
        self._node_labels = node_labels
        self._watch = CounterWatch()
        self._places: dict[bytes, _Place | None] = {}

    def read_events(self, series: Sequence[bytes]) -> list[Event]:
        """The errors that these series show, as events of their nodes."""
        events = []
        for one in series:
            try:
                labels, rest = split_labels(one)
                place = self._find_place(labels)
                samples = [] if place is None else sorted(_samples(rest))
            except (WireError, RefusedSeries):
                continue  # refused or passed on before; nothing can be read of it here
            for time, value in samples:
                assert place is not None
                counter, device, node = place
                error = self._watch.update(Reading(node, device, counter, value, time))
                if error is not None:
                    events.append(event_of(error, node, time, SOURCE))
        return events

    def _find_place(self, block: bytes) -> _Place | None:
        if block in self._places:
            return self._places[block]
        if len(self._places) >= _MEMO_SERIES:
            self._places = {}
        labels = {name: value for name, value, _ in read_labels(block)}
        self._places[block] = found = self._place_of(labels)
        return found

    def _place_of(self, labels: Mapping[str, str]) -> _Place | None:
        counter = labels.get(METRIC_NAME, "").removeprefix(_COPY_PREFIX)
        node = next((labels[name] for name in self._node_labels if labels.get(name)), "")
        if not node or not kind_of_counter(counter):
            return None
        device = next((f"{name} {labels[name]}" for name in _DEVICE_LABELS if labels.get(name)), "")
        for prefix in ("pci_bus_id ", "UUID ", "uuid "):
            device = device.removeprefix(prefix)  # these tell by themselves what they are
        link = labels.get("nvlink", "")
        return counter, f"{device}, NVLink {link}" if link else device, node


def _samples(rest: bytes) -> Iterator[tuple[float, float]]:
    """The samples of a series: time in seconds since the epoch, value."""
    for field in fields(rest):
        if field.number != 2:
            continue
        value, time_ms = 0.0, 0
        for part in fields(field.value):
            if part.number == 1:
                value = struct.unpack("<d", part.value)[0]
            elif part.number == 2:
                time_ms = part.value
        if 0 < time_ms < 2**53:
            yield time_ms / 1000.0, value
