"""Waiting for conditions, by a clock that moves with what is done."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lens_core.testing import until, waiting


class Clock:
    """Moves with pauses, which it notes, and with conditions."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(waiting, "time", made)
    monkeypatch.setattr(waiting, "asyncio", SimpleNamespace(sleep=made.sleep))
    return made


@pytest.mark.parametrize(("takes", "pause"), [(0.0, 0.005), (0.001, 0.005), (0.01, 0.04), (5.0, 0.1)])
async def test_a_condition_that_takes_long_is_asked_less_often(clock: Clock, takes: float, pause: float) -> None:
    def is_third_time() -> bool:
        clock.now += takes
        return len(clock.pauses) == 2

    await until(is_third_time, "the third time")
    assert clock.pauses == pytest.approx([pause, pause])


async def test_a_condition_that_does_not_come_true_is_named(clock: Clock) -> None:
    with pytest.raises(AssertionError, match="after 3 s still not: nothing"):
        await until(lambda: False, "nothing", seconds=3)
    assert sum(clock.pauses) == pytest.approx(3, abs=0.1)
