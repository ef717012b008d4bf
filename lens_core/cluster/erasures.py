"""Deleting a workload or run from the log of a cluster: marks that all daemons share, and the counting of what waits.

What detectors made of records that were there before comes after them in the log. So the deletion goes through every
partition's `in` first; once the owners have passed it, everything of before lies before the end of `out`. A mark then
names that end, and nothing of the workload before it is sent by any daemon, also by one that starts later.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from ..base.errors import Unavailable
from ..base.exits import without_exit
from ..delivery.erasure import Erasure
from ..model.records import Record, decode_envelope
from ..pipeline.isolated import IsolatedSink
from ..plugin_api.components import Sink
from ..plugin_api.sink_answers import Position
from .connection import Fenced, LogMessage
from .key_values import KeyValues
from .log_stream import LogStream, token_of
from .messages import ERASURE, IN, MESSAGE_ID, OUT, OWNER, RECORDS, decode_output, envelope_of, pack_body
from .positions import position_in

logger = logging.getLogger("lens.cluster")

PODS_PER_MARK = 3000
TRIES = 10
LOOK_SECONDS = 0.05
ASK_SINK_SECONDS = 2.0

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Erasure)
_index_decoder = msgspec.json.Decoder(dict[str, int])


class ErasureMarks:
    """The marks of one pipeline: an index of their numbers and last sequences, and a key for each.

    A number begins with the mark of the stream in which its last sequence is.
    """

    def __init__(self, keys: KeyValues, stream: LogStream) -> None:
        self.current: Sequence[Erasure] = []
        self._keys = keys
        self._stream = stream
        self._key = f"erasures.{token_of(stream.pipeline)}"
        self._known: dict[str, Erasure] = {}

    async def load_marks(self) -> None:
        """Know all marks that were written before this call. Raises Overloaded."""
        entry = await self._keys.read_entry(self._key)
        index = _index_decoder.decode(entry.text) if entry is not None else {}
        known = {}
        for number in index:
            stream_mark, separator, _ = number.partition("-")
            if separator and stream_mark != self._stream.mark:
                continue  # of a stream that was deleted since
            mark = self._known.get(number)
            if mark is None:
                body = await self._keys.read_entry(f"{self._key}.{number}")
                if body is None:
                    continue  # removed since, because nothing of it waits any more
                mark = _decoder.decode(body.text)
            known[number] = mark
        self._known = known
        self.current = list(known.values())

    async def write_marks(self, erasure: Erasure, oldest_waiting: int) -> None:
        """Add marks, and remove those after which everything is delivered. Raises Overloaded."""
        added: dict[str, int] = {}
        for mark in split_erasure(erasure):
            number = f"{self._stream.mark}-{uuid.uuid4().hex}"
            await self._keys.write_entry(f"{self._key}.{number}", _encoder.encode(mark).decode())
            added[number] = mark.last_batch
        for _ in range(TRIES):
            entry = await self._keys.read_entry(self._key)
            index = _index_decoder.decode(entry.text) if entry is not None else {}
            gone = [number for number, last in index.items() if last < oldest_waiting]
            kept = {number: last for number, last in index.items() if last >= oldest_waiting}
            try:
                revision = entry.revision if entry is not None else 0
                await self._keys.write_entry(self._key, _encoder.encode({**kept, **added}).decode(), revision)
            except Fenced:
                continue  # another deletion at the same time
            for number in gone:
                await self._keys.purge_key(f"{self._key}.{number}")
            await self.load_marks()
            return
        raise Unavailable("other deletions are under way; delete again", retry_after_seconds=1)


def split_erasure(erasure: Erasure) -> list[Erasure]:
    """An erasure as several that cover the same together, each small enough for a message."""
    pods = list(erasure.pods)
    pieces = [pods[first : first + PODS_PER_MARK] for first in range(0, max(1, len(pods)), PODS_PER_MARK)]
    return [msgspec.structs.replace(erasure, pods=piece) for piece in pieces]


def decode_erasure(body: bytes) -> Erasure:
    """The erasure of a message of `in`. Raises msgspec.DecodeError."""
    return _decoder.decode(body)


async def pass_through_owners(stream: LogStream, partitions: int, erasure: Erasure, deadline_seconds: float) -> None:
    """Return once the owner of every partition has read its input up to now and has ended the jobs. Raises Unavailable.

    Owners that do not read now hold this up: nobody else knows what their detectors will still make.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + deadline_seconds
    position = await stream.read_last_sequence()
    marks = split_erasure(erasure)
    sent = await asyncio.gather(*(_append_marks(stream, number, marks) for number in range(partitions)))
    waiting = dict(enumerate(sent))
    while waiting:
        found = await stream.connection.read_messages(stream.name, f"{stream.prefix}.*.{OWNER}", position)
        for message in found:
            position = message.sequence
            partition = int(message.subject.split(".")[-3])
            if message.body and decode_output(message.body).sequence >= waiting.get(partition, 0):
                waiting.pop(partition, None)
        if waiting and not found:
            if loop.time() > ends:
                raise Unavailable(
                    f"{len(waiting)} of {partitions} partitions are not read now; delete again", retry_after_seconds=5
                )
            await asyncio.sleep(LOOK_SECONDS)


async def _append_marks(stream: LogStream, partition: int, marks: Sequence[Erasure]) -> int:
    last = 0
    for mark in marks:
        headers = {MESSAGE_ID: uuid.uuid4().hex, RECORDS: "0", ERASURE: "1"}
        last = await stream.append_to(partition, IN, pack_body(_encoder.encode(mark)), headers)
    return last


async def read_positions(
    stream: LogStream, keys: KeyValues, partitions: int, sinks: Mapping[str, Sink]
) -> dict[int, Position]:
    """The position that every sink has passed, by partition; those that some sink has not begun are missing.

    A sink that keeps its own is asked: the one in the bucket may be some seconds behind.
    """
    prefix = f"positions.{token_of(stream.pipeline)}"
    entries = await keys.read_entries(prefix)
    passed: dict[int, list[Position]] = {partition: [] for partition in range(partitions)}
    for name, sink in sinks.items():
        is_asked = keeps_position(sink)
        for partition, positions in passed.items():
            entry = entries.get(f"{prefix}.{partition}.{token_of(name)}")
            position = position_in(entry.text, stream.mark) if entry is not None else Position(0, 0)
            if is_asked:
                own = await _own_position(sink, f"{stream.identity}/{partition}")
                is_asked = own is not None
                position = max(position, own or position)
            positions.append(position)
    return {partition: min(positions) for partition, positions in passed.items() if positions}


def keeps_position(sink: Sink) -> bool:
    """Whether a sink certainly keeps its position beside its data; of one in a process of its own it is not known."""
    return type(sink).position not in (Sink.position, IsolatedSink.position)


async def _own_position(sink: Sink, identity: str) -> Position | None:
    """The position of a sink; None if it does not answer: then it has at least passed what the bucket says."""
    try:
        asked = without_exit(sink.position(identity))
        return await asyncio.wait_for(asked, ASK_SINK_SECONDS) or Position(0, 0)
    except Exception as error:  # noqa: BLE001 - whatever a sink raises
        logger.debug("A sink does not say where it is. sink=%s error=%r", sink.name, error)
        return None


async def read_waiting(
    stream: LogStream, kind: str, positions: dict[int, Position]
) -> AsyncIterator[tuple[int, Sequence[Record]]]:
    """The readable records of all partitions' subjects of a kind after these positions, by message."""
    after = 0
    subject = f"{stream.prefix}.*.{kind}"
    while found := await stream.connection.read_messages(stream.name_of(kind), subject, after):
        after = found[-1].sequence
        for message in found:
            records = _records_behind(
                message, positions.get(int(message.subject[len(stream.prefix) + 1 :].split(".")[0]))
            )
            if records:
                yield message.sequence, records


def _records_behind(message: LogMessage, position: Position | None) -> Sequence[Record]:
    body, count = envelope_of(message)
    if not count or (position is not None and Position(message.sequence, count) <= position):
        return []
    first = position.offset if position is not None and position.batch == message.sequence else 0
    try:
        return list(decode_envelope(body).records)[first:]
    except msgspec.DecodeError:
        return []


async def count_waiting(
    stream: LogStream, keys: KeyValues, partitions: int, sinks: Mapping[str, Sink], erasure: Erasure
) -> tuple[int, int]:
    """The waiting records that an erasure covers, and the sequence of the oldest message that waits at all."""
    positions = await read_positions(stream, keys, partitions, sinks)
    end = await stream.read_last_sequence()
    covered, oldest = 0, end + 1
    async for sequence, records in read_waiting(stream, OUT, positions):
        oldest = min(oldest, sequence)
        covered += sum(map(erasure.covers, records))
    return covered, oldest
