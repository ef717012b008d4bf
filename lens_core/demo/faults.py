"""The planned faults of the demo's training: a spike, a NaN, checkpoints, a stall of the second rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .spirals import Point

# Lens calls a job stalled after a minute of silence.
LONG_STALL_SECONDS = 70.0
_LONG_ENOUGH_SECONDS = 150.0


class Plan(NamedTuple):
    """Seconds after the start; a short run has everything earlier, and a stall too short to be called one."""

    spike: float
    nan: float
    checkpoint_every: float
    stall: float
    stall_seconds: float


def plan_for(seconds: float) -> Plan:
    """The plan of a run of so many seconds."""
    if seconds >= _LONG_ENOUGH_SECONDS:
        return Plan(spike=15.0, nan=30.0, checkpoint_every=25.0, stall=60.0, stall_seconds=LONG_STALL_SECONDS)
    return Plan(0.25 * seconds, 0.45 * seconds, 0.2 * seconds, 0.65 * seconds, 0.1 * seconds)


class Planned:
    """Says of each thing once that its time has come."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._spike, self._nan, self._stall = plan.spike, plan.nan, plan.stall
        self._checkpoint = plan.checkpoint_every

    def spoil(self, batch: list[Point], elapsed: float) -> list[Point]:
        """Return the batch, or its faulty form: labels exchanged and points far away, or a NaN."""
        if elapsed >= self._spike:
            self._spike = math.inf
            return [(20.0 * x, 20.0 * y, 1 - label) for x, y, label in batch]
        if elapsed >= self._nan:
            self._nan = math.inf
            return [(math.nan, y, label) for _, y, label in batch[:1]] + batch[1:]
        return batch

    def is_checkpoint(self, elapsed: float) -> bool:
        """Whether to save now."""
        if elapsed < self._checkpoint:
            return False
        self._checkpoint = elapsed + self.plan.checkpoint_every
        return True

    def stall_seconds(self, elapsed: float) -> float:
        """Return how many seconds to hang now."""
        if elapsed < self._stall:
            return 0.0
        self._stall = math.inf
        return self.plan.stall_seconds


def is_finite(numbers: Sequence[float]) -> bool:
    """Whether a step may be taken: a gradient with a NaN in it is skipped, as loss scalers do."""
    return all(math.isfinite(number) for number in numbers)
