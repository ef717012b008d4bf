"""Whether this daemon reaches its required sinks; one that does not gives what it owns to daemons that do.

A daemon can lose the database alone: its lease is fine, and nobody else delivers its partitions. It therefore says with
its heartbeat that it cannot deliver, and asks its sinks before it takes part again. If no daemon can deliver, all keep
what they have.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ..base.exits import without_exit
from ..delivery.sending.policy import answer_within
from ..delivery.sending.sender import SinkSlot, SinkStatus

logger = logging.getLogger("lens.cluster")

# A sink counts as lost after so many failures in a row, and so long without a success in any partition of this daemon.
FAILURES = 3
FAILING_SECONDS = 30.0
# The pause before the sinks are asked, doubled each time that they are lost again soon after.
PAUSE_SECONDS = 30.0
MOST_PAUSE_SECONDS = 600.0
ASK_SECONDS = 10.0


class Ability:
    """Looks at the senders of this daemon.

    `sinks` gives each required sink with its status over all partitions owned here; `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        sinks: Callable[[], Sequence[tuple[SinkSlot, SinkStatus]]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.unreached: Sequence[str] = ()
        self._sinks = sinks
        self._clock = clock
        self._failing_since: dict[str, float] = {}
        self._lost: Sequence[SinkSlot] = ()
        self._lost_at = self._ask_at = self._pause = 0.0

    async def check_sinks(self) -> None:
        """Look at the senders, and ask the sinks that were lost whether they are there again."""
        if not self.unreached:
            self._notice_failures()
        elif self._has_delivered() or (self._clock() >= self._ask_at and await self._is_answered()):
            logger.warning("This daemon reaches its sinks again. sinks=%s", ", ".join(self.unreached))
            self._lost, self.unreached = (), ()

    def _notice_failures(self) -> None:
        now = self._clock()
        found = self._sinks()
        failing = {slot.name for slot, status in found if _is_failing(status, now)}
        self._failing_since = {name: self._failing_since.get(name, now) for name in failing}
        lost = [slot for slot, _ in found if now - self._failing_since.get(slot.name, now) >= FAILING_SECONDS]
        if not lost:
            return
        is_again = self._pause and now - self._lost_at < 2 * MOST_PAUSE_SECONDS
        self._pause = min(2 * self._pause, MOST_PAUSE_SECONDS) if is_again else PAUSE_SECONDS
        self._lost, self._lost_at, self._ask_at = lost, now, now + self._pause
        self._failing_since = {}
        self.unreached = sorted({slot.name for slot in lost})
        logger.warning(
            "This daemon does not reach its sinks; daemons that do get its partitions. sinks=%s",
            ", ".join(self.unreached),
        )

    def _has_delivered(self) -> bool:
        """Whether the lost sinks have taken something since: the partitions stay where nobody reaches the sinks."""
        successes = {slot.name: status.last_success_at or 0.0 for slot, status in self._sinks()}
        return all(successes.get(slot.name, 0.0) > self._lost_at for slot in self._lost)

    async def _is_answered(self) -> bool:
        """Ask each lost sink for a position, for which it needs what it stores to."""
        never = asyncio.Event()
        for slot in self._lost:
            try:
                if slot.ensure_started is not None:
                    await slot.ensure_started()
                asked = without_exit(slot.sink.position(""))
                await answer_within(ASK_SECONDS, asked, never, f"sink {slot.name}")
            except Exception as error:  # noqa: BLE001 - a sink's own error says that it is not reached
                logger.debug("Sink %s is still not reached: %s", slot.name, error)
                self._ask_at = self._clock() + PAUSE_SECONDS
                return False
        return True


def _is_failing(status: SinkStatus, now: float) -> bool:
    succeeded = status.last_success_at
    return status.failures_in_a_row >= FAILURES and (succeeded is None or now - succeeded >= FAILING_SECONDS)
