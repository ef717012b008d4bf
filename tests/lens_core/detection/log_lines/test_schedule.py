"""A tick looks at what is due, and finds what looking at everything finds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Event, LogLine, Origin
from lens_core.detection.log_lines.schedule import Schedule
from lens_core.detection.log_lines.stream_memory import FORGET_SECONDS, is_silent
from lens_core.plugin_api.components import Detector
from tests.generated import examples
from tests.lens_core.detection.log_lines.stand import Stand, megatron, of

STEPS = st.tuples(st.just("step"), st.integers(0, 3), st.integers(1, 400))
WAITS = st.tuples(st.just("wait"), st.just(0), st.sampled_from([1, 5, 61, 200, 4000, int(FORGET_SECONDS)]))
OTHERS = st.tuples(st.sampled_from(["end", "rollback", "restart", "open"]), st.integers(0, 3), st.just(0))


@given(st.lists(st.one_of(STEPS, STEPS, WAITS, OTHERS), max_size=40))
@settings(deadline=None, max_examples=examples(60))
def test_a_tick_finds_what_a_walk_finds(detectors: list[Detector], done: list[tuple[str, int, int]]) -> None:
    stand = Stand(detectors)
    steps = [0, 0, 0, 0]
    for what, job, seconds in done:
        origin = Origin(workload_uid=f"job-{job}", pod_name=f"pod-{job}", namespace="ns")
        if what in ("step", "rollback"):
            stand.now += seconds
            steps[job] += 1
            line = LogLine(origin=origin, text=megatron(steps[job]), event_time=stand.now)
            stand.give([line], commit=what == "step")
        elif what == "end":
            stand.give([Event(origin=origin, type="training_finished", event_time=stand.now)])
        elif what == "open":
            stand.give([LogLine(origin=origin, text="no step", event_time=stand.now)])
        elif what == "restart":
            stand.restart()
        stand.now += seconds if what == "wait" else 0.5
        check_tick(stand)


def check_tick(stand: Stand) -> None:
    memory = stand.processor._memory
    silent = sorted(name for name, job in memory.jobs() if is_silent(job, stand.now))
    kept = {key for key, one in memory._kept.items() if not one.seen_at < stand.now - FORGET_SECONDS}
    found = of(Event, stand.give([]))
    assert sorted(f"/w/{event.origin.workload_uid}" for event in found if event.type == "stalled") == silent
    assert memory._kept.keys() == kept


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100), st.booleans()), max_size=60))
def test_each_name_is_due_once_at_its_earliest_time(given: list[tuple[int, int, bool]]) -> None:
    schedule, expected = Schedule(), dict[str, int]()
    for number, due, pops in given:
        name = f"name-{number}"
        schedule.schedule_earliest(name, due)
        expected[name] = min(due, expected.get(name, due))
        if pops:
            late = sorted((at, one) for one, at in expected.items() if at <= due)
            assert schedule.pop_due(due) == [one for _, one in late]
            expected = {one: at for one, at in expected.items() if at > due}
        assert len(schedule) == len(expected)
        assert len(schedule._heap) <= 2 * len(expected) + 65


def test_a_tick_looks_only_at_what_is_due(detectors: list[Detector]) -> None:
    stand = Stand(detectors)
    for job in range(30):
        origin = Origin(workload_uid=f"job-{job}")
        for step in (1, 2, 3):
            stand.now += 1.0
            stand.give([LogLine(origin=origin, text=megatron(step), event_time=stand.now)])
    memory = stand.processor._memory
    assert memory.pop_overdue(stand.now - 28.0) == []
    assert [name for name, _ in memory.pop_overdue(stand.now - 23.5)] == ["/w/job-0", "/w/job-1"]
