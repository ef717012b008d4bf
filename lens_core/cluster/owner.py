"""The owner of a partition runs the detectors over what came in, and writes what they made with their state.

Everything that an owner knows is in its subject of the log: each message holds the records that were made, the changes
of the detectors' state, and how far the input was read. A new owner first appends a message of its own, which nobody
can do who has not seen the last one; from then on the old owner can append nothing (its expected sequence is wrong),
and the new one reads the old one's messages up to its own. Snapshots of the state keep that short.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ..base.errors import LensError, Overloaded, PayloadTooLarge
from ..model.processing import Processed, RecordProcessor
from ..model.records import Record, decode_envelope, encode_envelope
from .connection import Fenced, LogFull, LogMessage
from .erasures import decode_erasure
from .follower import Follower
from .log_stream import LogStream
from .messages import (
    ERASURE,
    IN,
    MESSAGE_ID,
    OWNER,
    RECORDS,
    STATE,
    OwnerOutput,
    decode_output,
    encode_output,
    envelope_of,
    pack_body,
    unpack_body,
)

logger = logging.getLogger("lens.cluster")

TICK_SECONDS = 5.0
RETRY_SECONDS = 0.5
# After so many messages, or bytes of them, the next owner should not have to read them all.
SNAPSHOT_MESSAGES = 500
SNAPSHOT_BYTES = 1024 * 1024
SNAPSHOT_CHUNK_BYTES = 256 * 1024
_COVERS = "Lens-Covers"
_INPUT = "Lens-Input"
_INPUT_MARK = "Lens-Input-Mark"
_MARK = "Lens-Mark"
_CHUNK = "Lens-Chunk"
_SNAPSHOT = "Lens-Snapshot"

_encoder = msgspec.msgpack.Encoder()
_state_decoder = msgspec.msgpack.Decoder(dict[str, bytes])


class PartitionOwner:
    """Owns the detectors of one partition under one lease.

    `process` runs the processor over records; `keep` filters what goes on and counts it. `own_partition`
    ends with Fenced when another owner has begun.
    """

    def __init__(
        self,
        stream: LogStream,
        partition: int,
        epoch: int,
        processor: RecordProcessor,
        *,
        process: Callable[[RecordProcessor, Sequence[Record]], Processed],
        keep: Callable[[Processed], Sequence[Record]],
    ) -> None:
        self.input = (0, 0)
        self.is_loaded = False
        self.last = 0
        self.covered = 0
        self._stream = stream
        self._partition = partition
        self._epoch = epoch
        self._processor = processor
        self._process = process
        self._keep = keep
        self._state: dict[str, bytes] = {}
        self._state_last = 0
        self._since_snapshot = self._bytes_since_snapshot = self._snapshot_bytes = 0

    async def own_partition(self) -> None:
        """Take over, then read the input until cancelled. Raises Fenced, and Overloaded while taking over."""
        await self._take_over()
        follower = Follower(self._stream, self._partition, IN, self.input[0])
        if self.input[1]:
            follower.after = self.input[0] - 1  # a message of which only the first records are done
        ticked = asyncio.get_running_loop().time()
        async with contextlib.aclosing(follower.batches()) as batches:
            async for messages in batches:
                for message in messages:
                    await self._process_message(message)
                if asyncio.get_running_loop().time() - ticked >= TICK_SECONDS:
                    ticked = asyncio.get_running_loop().time()
                    await self._append_output(self._process(self._processor, []), *self.input)
                    await self._snapshot_if_due()

    async def _take_over(self) -> None:
        newest = await self._stream.read_newest(self._partition, OWNER)
        before = newest.sequence if newest is not None else 0
        headers = {MESSAGE_ID: uuid.uuid4().hex, RECORDS: "0"}
        self.last = await self._stream.append_to(self._partition, OWNER, b"", headers, expected=before)
        await self._load_snapshot()
        position = self.covered if self.covered < self.last else 0
        while position < self.last:
            found = await self._stream.read_after(self._partition, OWNER, position)
            for message in found:
                self._apply(message)
                position = message.sequence
            if not found:  # the replica that answered is behind
                await asyncio.sleep(0.02)
        await asyncio.to_thread(self._processor.load, dict(self._state))
        self.is_loaded = True

    def _apply(self, message: LogMessage) -> None:
        if not message.body:
            return
        output = decode_output(message.body)
        self.input = self._place_in_input(output.sequence, output.offset, output.input_mark)
        self._change_state(output)

    def _place_in_input(self, sequence: int, offset: int, mark: str) -> tuple[int, int]:
        """A place in the input as it is now: the begin, if the place is in a stream that was deleted since."""
        return (sequence, offset) if mark in ("", self._stream.input_mark) else (0, 0)

    def _change_state(self, output: OwnerOutput) -> None:
        for key, value in output.state.items():
            if value is None:
                self._state.pop(key, None)
            else:
                self._state[key] = value

    async def _process_message(self, message: LogMessage) -> None:
        sequence, offset = self.input
        if message.sequence < sequence or (message.sequence == sequence and not offset):
            return
        if message.headers.get(ERASURE):
            await self._end_jobs(message)
            return
        first = offset if message.sequence == sequence else 0
        body, records = envelope_of(message)
        try:
            found = list(decode_envelope(body).records)
        except msgspec.DecodeError as error:
            logger.error("A message of the log cannot be read; its records are lost. records=%d %s", records, error)
            found = []
        await self._process_records(message.sequence, found, first, len(found))

    async def _end_jobs(self, message: LogMessage) -> None:
        """Forget what the detectors know of a deleted workload; the output says that the input was read up to here."""
        changes: Mapping[str, bytes | None] = {}
        erasure = decode_erasure(unpack_body(message.body))
        if erasure.run_id is None:
            changes = self._processor.end_jobs(erasure.is_origin)
        await self._append_output(Processed(records=[], state_changes=changes), message.sequence, 0)

    async def _process_records(self, sequence: int, records: Sequence[Record], first: int, last: int) -> None:
        """Process records `first` to `last` of a message; in halves if what they give is more than NATS takes."""
        is_whole = last == len(records)
        done = self._process(self._processor, records[first:last])
        try:
            await self._append_output(done, sequence, 0 if is_whole else last)
        except PayloadTooLarge as error:
            self._processor.rollback()
            if last - first < 2:
                logger.error("What detectors made of a record is too large and is lost: %s", error)
                await self._append_output(Processed(records=[]), sequence, 0 if is_whole else last)
                return
            middle = (first + last) // 2
            await self._process_records(sequence, records, first, middle)
            await self._process_records(sequence, records, middle, last)

    async def _append_output(self, done: Processed, sequence: int, offset: int) -> None:
        """One message with the records and the state. Raises Fenced, and PayloadTooLarge before anything is written."""
        kept = self._keep(done)
        if not kept and not done.state_changes and (sequence, offset) == self.input:
            return
        envelope = encode_envelope(kept, 0.0) if kept else b""
        output = OwnerOutput(sequence, offset, envelope, done.state_changes, self._stream.input_mark)
        body = encode_output(output)
        if len(body) > self._stream.connection.max_payload - 8192:
            raise PayloadTooLarge(f"{len(body)} bytes")
        identity = f"{self._stream.subject(self._partition, OWNER)}:{self._epoch}:{self.last}"
        headers = {MESSAGE_ID: identity, RECORDS: str(len(kept))}
        while True:
            try:
                self.last = await self._stream.append_to(self._partition, OWNER, body, headers, expected=self.last)
            except Fenced:
                raise
            except Overloaded as error:
                logger.debug("The owner's output is repeated: %s", error)
                if isinstance(error, LogFull):  # what is delivered can be deleted only after a snapshot
                    await self._snapshot_quietly()
                await asyncio.sleep(RETRY_SECONDS)
            else:
                break
        self.input = (sequence, offset)
        self._change_state(output)
        self._since_snapshot += 1
        self._bytes_since_snapshot += len(body)

    async def _snapshot_if_due(self) -> None:
        many_bytes = max(SNAPSHOT_BYTES, 2 * self._snapshot_bytes)
        if self._since_snapshot >= SNAPSHOT_MESSAGES or self._bytes_since_snapshot >= many_bytes:
            await self.write_snapshot()

    async def _snapshot_quietly(self) -> None:
        try:
            await self.write_snapshot()
        except Overloaded as error:
            logger.debug("No snapshot now: %s", error)

    async def write_snapshot(self) -> None:
        """Write the whole state, so that the next owner reads only what comes after. Raises Fenced, Overloaded."""
        if not self.is_loaded or not self._since_snapshot:
            return
        body = pack_body(_encoder.encode(self._state))
        pieces = range(0, max(1, len(body)), SNAPSHOT_CHUNK_BYTES)
        identity, first, covers = uuid.uuid4().hex, 0, self.last
        for number, start in enumerate(pieces):
            headers = {
                _SNAPSHOT: identity,
                _CHUNK: f"{number + 1}/{len(pieces)}",
                _COVERS: str(covers),
                _INPUT: f"{self.input[0]}.{self.input[1]}",
                _INPUT_MARK: self._stream.input_mark,
                _MARK: self._stream.mark,
            }
            piece = body[start : start + SNAPSHOT_CHUNK_BYTES]
            self._state_last = await self._stream.append_to(
                self._partition, STATE, piece, headers, expected=self._state_last
            )
            first = first or self._state_last
        self.covered, self._snapshot_bytes = covers, len(body)
        self._since_snapshot = self._bytes_since_snapshot = 0
        await self._stream.trim(self._partition, STATE, first)

    async def _load_snapshot(self) -> None:
        """The newest snapshot that is whole."""
        newest = await self._stream.read_newest(self._partition, STATE)
        self._state_last = newest.sequence if newest is not None else 0
        position, chunks = 0, list[LogMessage]()
        while position < self._state_last:
            found = await self._stream.read_after(self._partition, STATE, position)
            if not found:
                await asyncio.sleep(0.02)
                continue
            position = found[-1].sequence
            for message in found:
                number, _, total = message.headers[_CHUNK].partition("/")
                chunks = [*chunks, message] if number != "1" else [message]
                if number == total and len(chunks) == int(total):
                    self._use_snapshot(chunks)

    def _use_snapshot(self, chunks: Sequence[LogMessage]) -> None:
        if len({message.headers[_SNAPSHOT] for message in chunks}) != 1:
            return
        body = unpack_body(b"".join(message.body for message in chunks))
        try:
            self._state = _state_decoder.decode(body)
        except msgspec.DecodeError as error:
            raise LensError(
                f"the state of {self._stream.subject(self._partition, STATE)} is damaged: {error}"
            ) from None
        headers = chunks[0].headers
        is_of_this_log = headers.get(_MARK, self._stream.mark) == self._stream.mark
        self.covered = int(headers[_COVERS]) if is_of_this_log else 0
        sequence, _, offset = headers[_INPUT].partition(".")
        self.input = self._place_in_input(int(sequence), int(offset), headers.get(_INPUT_MARK, ""))
