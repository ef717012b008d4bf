"""Whatever jobs there are, all looks together keep to their share of a core."""

from __future__ import annotations

import pytest
from lens_plugins.analyzers import turns
from lens_plugins.analyzers.turns import Turns, TurnSettings


class Clock:
    """A clock that tests move."""

    now = 1000.0

    def monotonic(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(turns, "time", found)
    return found


@pytest.mark.parametrize("jobs", [1, 10, 200])
def test_all_looks_together_keep_to_their_share(clock: Clock, jobs: int) -> None:
    found = Turns(TurnSettings(longest_rest_seconds=1e9))
    spent, begun = 0.0, clock.now
    while clock.now < begun + 4 * 3600:
        found.note(f"job-{number}" for number in range(jobs))
        for uid in found.due():
            clock.now += 0.03
            spent += 0.03
            found.looked_at(uid, 0.03)
        clock.now += 60
    assert spent / (clock.now - begun) <= 0.005 * 1.2
    assert spent > 0.03 * jobs  # and each has had more than one turn


def test_few_jobs_are_looked_at_again_soon(clock: Clock) -> None:
    found = Turns(TurnSettings())
    found.note(["job"])
    found.looked_at("job", 0.03)
    found.note(["job"])
    assert found.due() == []
    clock.now += 6.1
    assert found.due() == ["job"]


def test_who_waits_keeps_the_turn(clock: Clock) -> None:
    found = Turns(TurnSettings(longest_rest_seconds=0.0))
    found.note(["b", "a"])
    found.note(["a", "c"])
    assert found.due() == ["b", "a", "c"]
    found.looked_at("b", 5.0)
    assert found.due() == ["a", "c"]
