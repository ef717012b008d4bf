"""The attempts of a workload: why each ended and what it lost."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lens_core import Event, EventRow, Origin, RunSummary
from lens_core.http.attempts import describe_attempts
from lens_core.model.event_types import DIAGNOSIS_EVENTS
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row

S = 1000


def run(attempt: int, first: int | None, last: int | None, began: int, ended: int, **more: Any) -> RunSummary:
    fields = {"run_id": "r", "data_source": "wandb", "rank": 0, "rows": 1, "target_iteration": None, **more}
    return RunSummary(
        attempt=attempt, first_iteration=first, last_iteration=last, first_seen=began * S, last_seen=ended * S, **fields
    )


def event(kind: str, at: int, **fields: Any) -> EventRow:
    described = {"iteration": None, "run_id": "", "attempt": None, "data_source": "log", "details": {}, **fields}
    return EventRow(type=kind, timestamp=at * S, **described)


def test_each_attempt_has_its_end() -> None:
    runs = [
        run(1, 0, 100, 0, 100),
        run(1, 0, 98, 0, 100, rank=1),
        run(2, 81, 180, 200, 300),
        run(3, 150, 250, 400, 500),
        run(4, 240, 300, 600, 700),
    ]
    events = [
        event("training_failed", 705, details={"reason": "ValueError: bad"}, rank=0),
        event("checkpoint_saved", 650, iteration=280),
        event("stalled", 450),
        event("out_of_memory", 101, rank=3, node="n3"),
    ]
    found = [(one.attempt, one.end, one.reason, one.steps_lost) for one in describe_attempts(runs, events)]
    assert found == [
        (1, "failed", "out of device memory on rank 3, n3", 20),
        (2, "restarted", "", 31),
        (3, "stalled", "", 11),
        (4, "failed", "ValueError: bad on rank 0", 20),
    ]


@given(
    attempts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9)), max_size=6),
    events=st.lists(st.tuples(st.sampled_from(sorted(DIAGNOSIS_EVENTS)), st.integers(0, 90)), max_size=8),
)
def test_every_attempt_is_described_once(attempts: list[tuple[int, int, int]], events: list[tuple[str, int]]) -> None:
    runs, at = [], 0
    for number, (first, more, seconds) in enumerate(attempts, 1):
        runs.append(run(number, first, first + more, at, at + seconds))
        at += seconds + 1
    happened = sorted((event(kind, when) for kind, when in events), key=lambda one: -one.timestamp)
    found = describe_attempts(runs, happened)
    assert [one.attempt for one in found] == list(range(1, len(runs) + 1))
    assert all(one.steps_lost is None or one.steps_lost >= 0 for one in found)
    assert all(one.end for one in found[:-1]), "what is followed by another has ended"


async def test_the_route(asked: QueryApp) -> None:
    origin = Origin(workload_uid="job", rank=0)
    rows = [
        row(step, origin=origin, session=name)
        for name, steps in (("a", range(9)), ("b", range(5, 12)))
        for step in steps
    ]
    for one in (rows[:9], rows[9:]):
        await asked.spool.deliver(*one)
    await asked.spool.deliver(Event(origin=origin, type="training_ended", event_time=1_900_000_000.0))
    found = (await asked.json("/workloads/job/attempts"))["attempts"]
    assert [(one["attempt"], one["end"], one["steps_lost"]) for one in found] == [
        (1, "restarted", 4),
        (2, "ended", None),
    ]
    assert (await asked.json("/workloads/nobody/attempts"))["attempts"] == []
