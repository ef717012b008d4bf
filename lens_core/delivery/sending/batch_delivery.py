"""One chunk on its way to one sink: sent, bisected where it is poisoned, and accounted for, record by record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...base.redaction import hide
from ...model.records import Record, encode_envelope
from ...plugin_api.sink_answers import Answer, Batch, Delivered, Poisoned, Rejected, Retry
from ..spool.chunk import DeadLetter
from ..spool.sink_state import Outcome
from ..spool.spool import Spool
from ..spool.unpack import Unpacked
from .cursor_committer import Settlement, Settler
from .policy import Backoff, Part, halves


class Crew(NamedTuple):
    """What a shipment works with. `send` never raises; `pause` waits and says whether to go on."""

    sink: str
    pipeline: str
    spool: Spool
    backoff: Backoff
    settler: Settler
    send: Callable[[Batch], Awaitable[Answer]]
    pause: Callable[[float], Awaitable[bool]]


class Shipment:
    """Delivers what was unpacked, in order, part by part."""

    def __init__(self, crew: Crew, unpacked: Unpacked) -> None:
        self._crew = crew
        self._unpacked = unpacked
        self._parts = [Part(0, len(unpacked.records))]
        self._attempt = 0
        self._done = 0

    async def deliver(self) -> bool:
        """Until what became of every record is known, if not committed; False when stopped before that."""
        while self._parts:
            part = self._parts.pop()
            self._attempt += 1
            answer = await self._crew.send(self._batch(part)) if part.size else Delivered()
            if isinstance(answer, Retry):
                self._parts.append(part)
                delay = self._crew.backoff.next_delay(answer.after_seconds)
                going_on = self._is_overtaken() or await self._crew.pause(delay)
                if self._is_overtaken():
                    await self._settle(self._unpacked.total, 0, "", [], dropped=True)
                    return True
                if not going_on:
                    return False
            elif isinstance(answer, Poisoned) and part.size > 1:
                self._parts.extend(reversed(halves(part)))
                self._attempt = 0
            else:
                await self._finish(part, answer)
                self._attempt = 0
        return True

    def _is_overtaken(self) -> bool:
        return self._crew.spool.was_overtaken(self._crew.sink, self._unpacked.chunk.end)

    def _batch(self, part: Part) -> Batch:
        whole = part.size == len(self._unpacked.records)
        records = self._unpacked.records
        return Batch(
            records=records if whole else records[part.first : part.last],
            start=self._unpacked.position(self._done),
            end=self._unpacked.position(self._unpacked.end_of(part)),
            spool_id=self._crew.spool.spool_id,
            pipeline=self._crew.pipeline,
            sink=self._crew.sink,
            attempt=self._attempt,
            packed=self._unpacked.packed if whole else None,
        )

    async def _finish(self, part: Part, answer: Delivered | Rejected | Poisoned) -> None:
        """Account for a part that will not be sent again."""
        end = self._unpacked.end_of(part)
        if isinstance(answer, Poisoned):
            await self._settle(end, 0, "poisoned", [self._letter(part, 0, answer.reason)])
            return
        refused = answer.items if isinstance(answer, Rejected) else {}
        parts = answer.parts if isinstance(answer, Rejected) else {}
        letters = [self._letter(part, index, reason, parts.get(index)) for index, reason in refused.items()]
        await self._settle(end, part.size - len(letters) - answer.filtered, "refused", letters)

    def _letter(self, part: Part, index: int, reason: str, refused: Record | None = None) -> DeadLetter:
        return DeadLetter(hide(reason), encode_envelope([refused or self._unpacked.records[part.first + index]]))

    async def _settle(
        self, end: int, delivered: int, kind: str, letters: list[DeadLetter], *, dropped: bool = False
    ) -> None:
        """Everything up to the ordinal `end` is done."""
        first, self._done = self._done, end
        unreadable = [entry for entry in self._unpacked.unreadable if first <= entry.first < end]
        lost = sum(entry.last - entry.first for entry in unreadable)
        rest = end - first - delivered - len(letters) - lost
        rejected = {kind: len(letters), "unreadable": lost}
        outcome = Outcome(delivered, 0, rejected, rest) if dropped else Outcome(delivered, rest, rejected, 0)
        everything = [*letters, *(DeadLetter(entry.reason, entry.body) for entry in unreadable)]
        position, size = self._unpacked.position(end), self._unpacked.finished_bytes(first, end)
        await self._crew.settler.settle(Settlement(position, end - first, size, everything, outcome))
