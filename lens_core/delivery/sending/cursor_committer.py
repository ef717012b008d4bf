"""Commits of a sink's cursor: one at a time, while the next batch is on its way to the sink.

After a crash a sink may therefore receive two batches again instead of one, unless it keeps its own position.
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


class Ack(NamedTuple):
    """The outcome of `records` records up to `end`; batches of `size` bytes end in them."""

    end: Position
    records: int
    size: int
    letters: Sequence[DeadLetter]
    outcome: Outcome


class CursorCommitter:
    """Commits acknowledgements to the spool in order; retries until the spool has stored them, never raises LensError.

    `failed` receives the reason of each failed attempt.
    """

    def __init__(self, sink: str, spool: Spool, backoff: Backoff, failed: Callable[[str], None]) -> None:
        self._sink = sink
        self._spool = spool
        self._backoff = backoff
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._last_refusal_at: float | None = None

    async def commit(self, ack: Ack) -> None:
        """Start this commit once the previous one is done."""
        await self.wait()
        self._log_refusal(ack.letters)
        self._task = asyncio.create_task(self._advance(ack))

    def _log_refusal(self, letters: Sequence[DeadLetter]) -> None:
        """Say why records were refused, at most once a minute: a line for each would hide everything else."""
        now = time.monotonic()
        if letters and (self._last_refusal_at is None or now - self._last_refusal_at >= REFUSALS_EVERY_SECONDS):
            self._last_refusal_at = now
            reason = letters[0].reason
            logger.warning("Sink %s refused a record: %s; see lens replay --list", self._sink, reason)

    async def wait(self) -> None:
        """Wait for the commit under way; raise its unexpected error, if any."""
        if self._task is not None:
            # A cancellation of the sender does not undo what its sink has.
            await asyncio.shield(self._task)
            self._task = None

    async def settle(self) -> None:
        """Wait for the commit under way, whatever comes of it; it stays the sender's."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def finish(self) -> None:
        """Wait for the commit under way and log its unexpected error, if any."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if error := self._task.exception():
                logger.error("could not commit cursor for sink %s", self._sink, exc_info=error)
            self._task = None

    async def cancel(self) -> None:
        """Cancel the commit under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _advance(self, ack: Ack) -> None:
        """Retry until the spool has it: stored records are not sent again because a disk is full for a while."""
        while True:
            try:
                await self._spool.advance(self._sink, ack.end, ack.records, ack.size, ack.letters, ack.outcome)
            except LensError as error:
                self._failed(f"the spool: {error}")
                await asyncio.sleep(self._backoff.next_delay())
            else:
                self._backoff.reset()
                return
