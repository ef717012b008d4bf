"""The analyzer of stalls over a store in memory, with a clock of the test's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.stalls import Stalls

from lens_core import Event, NoSettings, Origin, PodLife, PodSpan, StepMetrics
from lens_core.testing import MemoryStore, check_analyzer, make_context
from tests.generated import examples

UID = "job"
BEGAN = 1_700_000_000.0
LOOK_SECONDS = 15.0


class Jobs:
    """A store, its analyzer, and the time: rows and events are logged at the clock's time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = BEGAN
        self.store = MemoryStore(folder)
        self.cursor = ""
        self.step = 0
        self.analyzer = self.make_analyzer()

    def make_analyzer(self) -> Stalls:
        analyzer = Stalls(NoSettings(), make_context("stalls", self.folder), clock=lambda: self.now)
        analyzer.store = self.store
        return analyzer

    def log_rows(self, count: int = 1, apart: float = 0.0, source: str = "wandb", run: str = "run") -> None:
        """Log rows of which the newest is of now."""
        rows = [
            StepMetrics(
                origin=Origin(workload_uid=UID),
                data_source=source,
                run_id=run,
                row_step=self.step + place,
                values={"loss": 1.0},
                event_time=self.now - (count - 1 - place) * apart,
            )
            for place in range(count)
        ]
        self.step += count
        self.store.hold(rows)

    def report_event(self, kind: str, **details: Any) -> None:
        """Report an event."""
        self.store.hold([Event(origin=Origin(workload_uid=UID), type=kind, event_time=self.now, details=details)])

    async def look(self) -> list[Event]:
        """One look; what it finds is stored."""
        changed, self.cursor = await self.store.changed_workloads(self.cursor)
        found = [one for one in await self.analyzer.analyze(changed) if isinstance(one, Event)]
        await self.analyzer.stored()
        self.store.hold(found)
        return found

    async def wait(self, seconds: float) -> list[Event]:
        """Let time pass, with a look every 15 seconds."""
        ends, found = self.now + seconds, await self.look()
        while self.now < ends:
            self.now = min(ends, self.now + LOOK_SECONDS)
            found += await self.look()
        return found

    async def train(self, rows: int, apart: float, source: str = "wandb") -> list[Event]:
        """Log rows, one after the other."""
        found: list[Event] = []
        for _ in range(rows):
            self.now += apart
            self.log_rows(source=source)
            found += await self.look()
        return found


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events]


async def test_the_analyzer_of_stalls_keeps_the_contract(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    jobs.log_rows(10, apart=1.0)
    await check_analyzer(jobs.analyzer, jobs.store)


async def test_a_job_that_stops_logging_is_stalled_and_goes_on(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    assert await jobs.train(60, 1.0) == []
    assert await jobs.wait(45) == []
    [stalled] = await jobs.wait(45)
    assert (stalled.type, stalled.run_id, stalled.attempt, stalled.iteration) == ("stalled", "run", 1, 59)
    assert stalled.details["usual_seconds"] == 1.0
    assert 60 <= stalled.details["silent_seconds"] <= 75
    assert await jobs.wait(3600) == []
    assert kinds(await jobs.train(30, 1.0)) == ["resumed"]
    assert kinds(await jobs.wait(90)) == ["stalled"]


async def test_a_job_that_told_its_start_and_hung_at_once_is_stalled(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    jobs.report_event("training_started")
    jobs.log_rows(5, apart=1.0)
    assert kinds(await jobs.wait(90)) == ["stalled"]


async def test_rows_that_are_fetched_every_five_minutes_are_no_stall(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    for _ in range(10):
        jobs.log_rows(300, apart=1.0)
        assert await jobs.wait(300) == []
    assert kinds(await jobs.wait(600)) == ["stalled"]


async def test_a_job_that_ended_is_no_stall(tmp_path: Path) -> None:
    for end in ("training_ended", "training_failed", "process_terminated"):
        jobs = Jobs(tmp_path / end)
        await jobs.train(60, 1.0)
        jobs.report_event(end)
        assert await jobs.wait(600) == [], end


async def test_a_job_whose_pods_are_gone_is_no_stall(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    await jobs.train(60, 1.0)
    pod = PodLife("p", "default", "job-0", "n1", 0, 1, [PodSpan(0, round(jobs.now * 1000))])
    jobs.store.hold_pods(UID, [pod])
    assert await jobs.wait(600) == []


async def test_a_stall_of_several_runs_is_one_event_that_names_none(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    for _ in range(20):
        jobs.now += 1
        jobs.log_rows(run="a")
        jobs.log_rows(run="b")
        await jobs.look()
    [stalled] = await jobs.wait(90)
    assert (stalled.run_id, stalled.attempt) == ("", None)


async def test_an_announced_pause_has_half_an_hour(tmp_path: Path) -> None:
    for pause in ("evaluation", "checkpoint_saving"):
        jobs = Jobs(tmp_path / pause)
        await jobs.train(60, 1.0)
        jobs.now += 0.5
        jobs.report_event(pause)
        assert await jobs.wait(1750) == [], pause
        assert kinds(await jobs.wait(120)) == ["stalled"], pause


async def test_a_checkpoint_that_was_saved_is_no_pause(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    await jobs.train(60, 1.0)
    jobs.report_event("checkpoint_saving")
    jobs.now += 2
    jobs.report_event("checkpoint_saved")
    assert kinds(await jobs.wait(120)) == ["stalled"]


async def test_reports_of_a_hung_job_do_not_hide_its_silence(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    await jobs.train(60, 1.0)
    found: list[Event] = []
    for _ in range(6):
        jobs.report_event("rank_report")
        found += await jobs.wait(15)
    [stalled] = found
    assert stalled.details["silent_seconds"] <= 75


async def test_a_job_with_a_log_is_left_to_the_readers_of_logs(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    for _ in range(30):
        jobs.now += 1
        jobs.log_rows()
        jobs.log_rows(source="log")
        await jobs.look()
    assert await jobs.wait(3600) == []


async def test_a_log_that_ended_before_the_job_says_nothing_of_its_stall(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    for _ in range(10):
        jobs.now += 1
        jobs.log_rows()
        jobs.log_rows(source="log")
        await jobs.look()
    found: list[Event] = []
    for _ in range(60):
        found += await jobs.train(1, 15.0)
    assert found == []
    assert kinds(await jobs.wait(900)) == ["stalled"]


async def test_imported_history_is_no_stall(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    jobs.report_event("training_started")
    jobs.log_rows(100, apart=1.0)
    jobs.now += 86400.0
    assert await jobs.wait(3600) == []


async def test_the_silence_of_a_job_is_not_that_of_a_stopped_daemon(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    await jobs.train(60, 1.0)
    await jobs.wait(30)
    jobs.now += 7200
    jobs.analyzer = jobs.make_analyzer()
    await jobs.analyzer.start()
    assert await jobs.wait(15) == []
    assert kinds(await jobs.wait(90)) == ["stalled"]


async def test_a_stall_that_was_reported_before_a_restart_is_not_reported_again(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    await jobs.train(60, 1.0)
    assert kinds(await jobs.wait(90)) == ["stalled"]
    await jobs.look()
    jobs.analyzer = jobs.make_analyzer()
    await jobs.analyzer.start()
    assert await jobs.wait(600) == []
    assert kinds(await jobs.train(5, 1.0)) == ["resumed"]


async def test_a_stall_that_others_reported_is_not_reported_again(tmp_path: Path) -> None:
    """Also after the analyzer has forgotten everything, as when another daemon begins to analyze."""
    jobs = Jobs(tmp_path)
    await jobs.train(60, 1.0)
    jobs.now += 20
    jobs.report_event("stalled")
    jobs.cursor, jobs.analyzer = "", jobs.make_analyzer()
    assert await jobs.wait(600) == []
    assert kinds(await jobs.train(20, 1.0)) == ["resumed"]
    assert kinds(await jobs.wait(90)) == ["stalled"]


async def test_what_could_not_be_stored_is_reported_again(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    await jobs.train(60, 1.0)
    await jobs.wait(45)
    jobs.now += 30
    assert kinds([one for one in await jobs.analyzer.analyze([]) if isinstance(one, Event)]) == ["stalled"]
    assert kinds(await jobs.look()) == ["stalled"]
    assert await jobs.look() == []


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(st.integers(3, 30), st.floats(0.1, 200.0)), min_size=1, max_size=4), st.booleans())
async def test_a_steady_pace_is_never_a_stall_and_silence_always_is(
    tmp_path_factory: Any, pieces: list[tuple[int, float]], is_told: bool
) -> None:
    """Rows that come at any pace are no stall; silence of several times that and a minute is one."""
    jobs = Jobs(tmp_path_factory.mktemp("stalls"))
    if is_told:
        jobs.report_event("training_started")
    rows, apart = pieces[0]
    assert await jobs.train(rows, apart) == []
    longest = apart
    for rows, apart in pieces[1:]:
        pace = min(apart, 2.0 * longest)
        assert await jobs.train(rows, pace) == []
        longest = max(longest, pace)
    limit = max(60.0, 3.0 * longest)
    assert kinds(await jobs.wait(2 * limit + 4 * 60.0)) == ["stalled"]
