"""One chunk on its way to one sink: sent, bisected where it is poisoned, and accounted for, record by record."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ...base.backoff import Backoff
from ...base.redaction import hide
from ...model.records import Record, encode_envelope
from ...plugin_api.sink_answers import Answer, Batch, Delivered, Poisoned, Position, Rejected, Retry
from ..log import SinkLog
from ..processing_marks import ProcessingMarks, is_inside, parts_around
from ..spool.batches import DeadLetter
from ..spool.sink_state import Outcome
from .cursor import Ack, CursorCommitter, Unpacked
from .policy import Part, PartLimit, halves

logger = logging.getLogger("lens.delivery")


class SendContext(NamedTuple):
    """Holds the parts that a batch delivery uses. `send` never raises; `pause` waits and says whether to go on.

    `limit` bounds the size of a part that the sink can answer within its timeout. `turn` is held from a send until its
    answer is accounted for.
    """

    sink: str
    pipeline: str
    spool: SinkLog
    backoff: Backoff
    committer: CursorCommitter
    limit: PartLimit
    send: Callable[[Batch], Awaitable[Answer]]
    pause: Callable[[float], Awaitable[bool]]
    marks: ProcessingMarks
    turn: asyncio.Lock


class BatchDelivery:
    """Delivers an unpacked chunk to one sink, in order, part by part."""

    def __init__(self, context: SendContext, unpacked: Unpacked) -> None:
        self._context = context
        self._unpacked = unpacked
        self._suspect = context.marks.suspect(context.sink)
        self._places = self._positions() if self._suspect is not None else []
        self._parts = [Part(0, len(unpacked.records))]
        if self._suspect is not None and unpacked.records:
            self._parts = parts_around(self._places, self._suspect)[::-1]  # the next one is at the end
        self._attempt = 0
        self._done = 0

    async def deliver(self) -> bool:
        """Send until every record has an outcome, committed or not; return False when stopped before that."""
        while self._parts:
            part = self._parts.pop()
            if self._context.limit.is_too_large(part.size):
                self._halve(part)
                continue
            self._attempt += 1
            answer = await self._send_and_settle(part)
            if isinstance(answer, Retry):
                self._parts.append(part)
                delay = self._context.backoff.next_delay(answer.after_seconds)
                going_on = self._is_overtaken() or await self._context.pause(delay)
                if self._is_overtaken():
                    await self._settle(self._unpacked.total, 0, "", [], dropped=True)
                    return True
                if not going_on:
                    return False
        if self._suspect is not None and self._suspect.end <= self._unpacked.chunk.end:
            self._context.marks.clear(self._context.sink)
        return True

    async def _send_and_settle(self, part: Part) -> Answer:
        """Send a part and, unless it has to be sent again, account for it or for its halves; return the answer."""
        async with self._context.turn:
            answer = await self._send_part(part)
            if isinstance(answer, Poisoned) and part.size > 1:
                self._halve(part)
            elif not isinstance(answer, Retry):
                await self._finish(part, answer)
                self._attempt = 0
            return answer

    async def _send_part(self, part: Part) -> Answer:
        """Return the answer of the sink; reject a part that was in flight at two deaths of the daemon."""
        erased = self._erased(part)
        if len(erased) == part.size:
            return Delivered(filtered=part.size)
        is_suspected = self._suspect is not None and is_inside(self._places, part, self._suspect)
        if self._suspect is not None and is_suspected and self._suspect.must_go_aside:
            rest = [index for index in range(part.size) if index not in erased]
            return Rejected(dict.fromkeys(rest, self._suspect.reason), filtered=len(erased))
        batch = self._make_batch(part, erased)
        deaths = self._suspect.deaths if self._suspect is not None and is_suspected else 0
        self._context.marks.begin_batch(self._context.sink, batch.start, batch.end, deaths)
        answer = await self._send_timed(batch, part)
        self._context.marks.end_batch(self._context.sink)
        return _answer_for_whole(answer, part, erased) if erased else answer

    def _erased(self, part: Part) -> frozenset[int]:
        """The indexes within a part of records whose workload or run was deleted after they were accepted."""
        erasures = self._context.spool.erasures
        if not erasures or self._unpacked.chunk.start.batch > max(erasure.last_batch for erasure in erasures):
            return frozenset()
        ordinals = self._unpacked.ordinals
        found = set()
        for index, record in enumerate(self._unpacked.records[part.first : part.last]):
            place = part.first + index if ordinals is None else ordinals[part.first + index]
            batch = self._unpacked.position(place + 1).batch
            if any(batch <= erasure.last_batch and erasure.covers(record) for erasure in erasures):
                found.add(index)
        return frozenset(found)

    async def _send_timed(self, batch: Batch, part: Part) -> Answer:
        """Return the sink's answer and adapt the part limit to the time that it took."""
        began = time.monotonic()
        answer = await self._context.send(batch)
        if not isinstance(answer, Retry):
            self._context.limit.answered(part.size, time.monotonic() - began)
        elif answer.timed_out and self._context.limit.timed_out(part.size):
            logger.warning(
                "Sink %s timed out with %d records; trying smaller batches",
                self._context.sink,
                part.size,
            )
        return answer

    def _positions(self) -> list[Position]:
        """The positions before the first record and after each one."""
        ordinals = self._unpacked.ordinals
        ends = range(len(self._unpacked.records)) if ordinals is None else ordinals
        return [self._unpacked.position(0), *(self._unpacked.position(ordinal + 1) for ordinal in ends)]

    def _halve(self, part: Part) -> None:
        # Never other than halves of what was sent before: a sink that has stored a batch after all, too late for its
        # answer to count, then knows each of the parts.
        self._parts.extend(reversed(halves(part)))
        self._attempt = 0

    def _is_overtaken(self) -> bool:
        return self._context.spool.was_overtaken(self._context.sink, self._unpacked.chunk.end)

    def _make_batch(self, part: Part, erased: frozenset[int]) -> Batch:
        whole = part.size == len(self._unpacked.records) and not erased
        records = self._unpacked.records
        kept = records if whole else records[part.first : part.last]
        if erased:
            kept = [record for index, record in enumerate(kept) if index not in erased]
        end = self._unpacked.position(self._unpacked.end_of(part))
        return Batch(
            records=kept,
            start=self._unpacked.position(self._done),
            end=end,
            spool_id=self._context.spool.identity_at(end),
            pipeline=self._context.pipeline,
            sink=self._context.sink,
            attempt=self._attempt,
            packed=self._unpacked.packed if whole else None,
            epoch=self._context.spool.epoch,
        )

    async def _finish(self, part: Part, answer: Delivered | Rejected | Poisoned) -> None:
        """Account for a part that will not be sent again; what was deleted meanwhile is no dead letter."""
        end, erased = self._unpacked.end_of(part), self._erased(part)
        if isinstance(answer, Poisoned):
            await self._settle(end, 0, "poisoned", [] if erased else [self._letter(part, 0, answer.reason)])
            return
        refused = answer.items if isinstance(answer, Rejected) else {}
        parts = answer.parts if isinstance(answer, Rejected) else {}
        letters = [
            self._letter(part, index, reason, parts.get(index))
            for index, reason in refused.items()
            if index not in erased
        ]
        await self._settle(end, part.size - len(refused) - answer.filtered, "refused", letters)

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
        await self._context.committer.commit(Ack(position, end - first, size, everything, outcome))


def _answer_for_whole(answer: Answer, part: Part, erased: frozenset[int]) -> Answer:
    """The answer to what was left of a part without the erased records, as one to the whole part."""
    if isinstance(answer, Delivered):
        return Delivered(filtered=answer.filtered + len(erased))
    if not isinstance(answer, Rejected):
        return answer
    kept = [index for index in range(part.size) if index not in erased]
    return Rejected(
        {kept[index]: reason for index, reason in answer.items.items()},
        filtered=answer.filtered + len(erased),
        parts={kept[index]: record for index, record in answer.parts.items()},
    )
