"""Moving a sink's cursor behind what it has: one commit at a time, while the next batch is on its way to the sink.

So after a crash a sink may be given two batches again instead of one; one that keeps its own position is not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...base.errors import LensError
from ...plugin_api.sink_answers import Position
from ..spool.chunk import DeadLetter
from ..spool.sink_state import Outcome
from ..spool.spool import Spool
from .policy import Backoff

logger = logging.getLogger("lens.delivery")

REFUSALS_EVERY_SECONDS = 60.0


class Settlement(NamedTuple):
    """What became of `records` records (batches of `size` bytes end in them) up to `end`."""

    end: Position
    records: int
    size: int
    letters: Sequence[DeadLetter]
    outcome: Outcome


class Settler:
    """Tells the spool, in order, what became of the records; never raises LensError, but tries until the spool has it.

    `failed` is told why it has not.
    """

    def __init__(self, sink: str, spool: Spool, backoff: Backoff, failed: Callable[[str], None]) -> None:
        self._sink = sink
        self._spool = spool
        self._backoff = backoff
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._last_refusal_at: float | None = None

    async def settle(self, settlement: Settlement) -> None:
        """Begin with this one once the one before it is done."""
        await self.done()
        self._log_refusal(settlement.letters)
        self._task = asyncio.create_task(self._advance(settlement))

    def _log_refusal(self, letters: Sequence[DeadLetter]) -> None:
        """Say why records were refused, at most once a minute: a line for each would hide everything else."""
        now = time.monotonic()
        if letters and (self._last_refusal_at is None or now - self._last_refusal_at >= REFUSALS_EVERY_SECONDS):
            self._last_refusal_at = now
            reason = letters[0].reason
            logger.warning("Sink %s refused a record: %s; see lens replay --list", self._sink, reason)

    async def done(self) -> None:
        """Wait for what is under way; raises what went wrong with it in an unexpected way."""
        if self._task is not None:
            # A cancellation of the sender does not undo what its sink has.
            await asyncio.shield(self._task)
            self._task = None

    async def finish(self) -> None:
        """Wait for what is under way, whatever becomes of it."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if error := self._task.exception():
                logger.error("what became of the last batch of %s was not stored", self._sink, exc_info=error)
            self._task = None

    async def give_up(self) -> None:
        """Wait no longer for what is under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _advance(self, settled: Settlement) -> None:
        """Until the spool has it: what a sink has stored is not sent again because a disk is full for a while."""
        while True:
            try:
                await self._spool.advance(
                    self._sink, settled.end, settled.records, settled.size, settled.letters, settled.outcome
                )
            except LensError as error:
                self._failed(f"the spool: {error}")
                await asyncio.sleep(self._backoff.next_delay())
            else:
                self._backoff.reset()
                return
