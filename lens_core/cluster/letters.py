"""Dead letters of a pipeline in a stream of their own, whose oldest make room for new ones; listed and replayed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from ..delivery.dead_letters import DeadLetterReason
from ..delivery.erasure import Erasure
from ..model.records import decode_envelope
from .connection import LogMessage
from .log_stream import LogStream, token_of
from .messages import MESSAGE_ID, ONLY_SINK, RECORDS, ROWS, unpack_body

REASON = "Lens-Reason"


class ClusterLetters:
    """The dead letters of all daemons."""

    def __init__(self, stream: LogStream, sinks: Sequence[str]) -> None:
        self._stream = stream
        self._sinks = list(sinks)

    async def reasons(self, sink: str = "", *, limit: int = 100) -> list[DeadLetterReason]:
        """The reasons for which a sink (or any) refused records, the most frequent first. Raises Overloaded."""
        found: dict[tuple[str, str], DeadLetterReason] = {}
        for name in [sink] if sink else self._sinks:
            async for letter in self._letters(name):
                reason = letter.headers.get(REASON, "")
                at, size = letter.stored_at, len(letter.body)
                known = found.get((name, reason))
                if known is None:
                    found[name, reason] = DeadLetterReason(
                        sink=name, reason=reason, records=1, bytes=size, first_at=at, last_at=at
                    )
                else:
                    found[name, reason] = msgspec.structs.replace(
                        known, records=known.records + 1, bytes=known.bytes + size, last_at=at
                    )
        return sorted(found.values(), key=lambda one: -one.records)[:limit]

    async def replay_letters(self, sink: str) -> int:
        """Put the dead letters of a sink back into the log, for it alone. Raises Overloaded."""
        records = 0
        async for letter in self._letters(sink):
            partition = int(letter.subject.split(".")[-3])
            headers = {
                MESSAGE_ID: f"replay.{token_of(sink)}.{letter.sequence}",
                RECORDS: letter.headers.get(RECORDS, "1"),
                ONLY_SINK: token_of(sink),
            }
            await self._stream.append_to(partition, ROWS, letter.body, headers)
            await self._stream.delete_letter(letter.sequence)
            records += int(headers[RECORDS])
        return records

    async def erase_letters(self, erasure: Erasure) -> int:
        """Delete the dead letters of a deleted workload or run; returns how many records. Raises Overloaded."""
        erased = 0
        for sink in self._sinks:
            async for letter in self._letters(sink):
                try:
                    records = decode_envelope(unpack_body(letter.body)).records
                except msgspec.DecodeError:
                    continue
                if records and all(map(erasure.covers, records)):
                    await self._stream.delete_letter(letter.sequence)
                    erased += len(records)
        return erased

    async def _letters(self, sink: str) -> AsyncIterator[LogMessage]:
        position = 0
        while found := await self._stream.read_letters(sink, position):
            position = found[-1].sequence
            for letter in found:
                yield letter
