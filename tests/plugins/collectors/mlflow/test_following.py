"""Runs are followed piece by piece: nothing is lost, nothing comes twice, whatever happens in between."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.collectors.mlflow.api import PointPage
from lens_plugins.collectors.mlflow.following import FollowedRuns, Round, merge_found
from lens_plugins.collectors.mlflow.settings import MlflowSettings

from lens_core import Event, Evidence, LensError, Record, StepMetrics
from tests.plugins.collectors.mlflow.tracking_server import MemoryServer

NOW = 1_700_000_000
URL = "http://mlflow"


class Follower:
    """Asks a server round after round, as the collector does, and keeps what it found as a store does."""

    def __init__(self, server: MemoryServer, **options: Any) -> None:
        self.server = server
        self.settings = MlflowSettings(url=URL, **options)
        msgspec.structs.force_setattr(self.settings, "points_at_once", options.get("points_at_once", 1_000))
        self.state = FollowedRuns()
        self.round: Round | None = None
        self.records: list[Record] = []
        self.problems: list[str] = []

    async def call(self, *, is_stored: bool = True) -> bool:
        """One call; True if there is more."""
        if self.round is None:
            logger = logging.getLogger("tests.mlflow")
            experiments = await self.server.experiments()
            self.round = Round(self.server, self.settings, logger, experiments, lambda: float(NOW))
        found = await self.round.read_on(self.state)
        self.problems += found.problems
        is_over = self.round.is_over
        if is_over or not is_stored:
            self.round = None
        if is_stored:
            self.records += found.records
            self.state = merge_found(self.state, found)
        return is_stored and not is_over

    async def finish_round(self) -> None:
        """Call until nothing is left."""
        while await self.call():
            pass

    def restart(self) -> None:
        """Go on with what is on the disk."""
        self.round = None
        self.state = msgspec.json.decode(msgspec.json.encode(self.state), type=FollowedRuns)

    def rows(self) -> list[StepMetrics]:
        """The rows so far."""
        return [record for record in self.records if isinstance(record, StepMetrics)]

    def events(self) -> list[tuple[str, str]]:
        """Type and run of the events so far."""
        return [(record.type, record.run_id) for record in self.records if isinstance(record, Event)]

    def current(self) -> dict[tuple[str, str, int], float]:
        """The answer of a store: of each run, metric and step the value of the highest sequence, the first one seen."""
        versions: dict[tuple[str, str, int], dict[int, float]] = defaultdict(dict)
        for row in self.rows():
            for key, value in row.values.items():
                versions[row.run_id, key, row.row_step].setdefault(row.sequence, value)
        return {place: of_step[max(of_step)] for place, of_step in versions.items()}


def expected(server: MemoryServer) -> dict[tuple[str, str, int], float]:
    """Of each run, metric and step the value that was logged last."""
    return {
        (run_id, key, point.step): point.value
        for run_id, metrics in server.points.items()
        for key, points in metrics.items()
        for point in points
    }


_logs = st.tuples(
    st.just("log"),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["loss", "lr"]),
    st.sampled_from([0.5, 1.5, math.inf, math.nan]),
    st.integers(NOW * 1000, NOW * 1000 + 6),
    st.integers(1, 4),
)
_others = st.sampled_from(
    [("call",), ("round",), ("lost",), ("restart",), ("end", "a"), ("end", "b"), ("resume", "a"), ("resume", "b")]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(_logs, _logs, _others), max_size=60), st.integers(2, 5), st.integers(1, 6), st.booleans())
def test_whatever_is_logged_is_found_once(
    steps: list[tuple[Any, ...]], page: int, points_at_once: int, knows_places: bool
) -> None:
    async def follow() -> None:
        server = MemoryServer(page, knows_places=knows_places)
        follower = Follower(server, points_at_once=points_at_once, requests_at_once=2)
        for step in steps:
            if step[0] == "log":
                server.log(*step[1:])
            elif step[0] == "end" and step[1] in server.status:
                server.end(step[1], "FAILED", NOW * 1000)
            elif step[0] == "resume" and step[1] in server.status:
                server.status[step[1]] = "RUNNING"
            elif step[0] == "restart":
                follower.restart()
            elif step[0] == "round":
                await follower.finish_round()
            elif step[0] in ("call", "lost"):
                await follower.call(is_stored=step[0] == "call")
        for run_id in server.status:
            server.end(run_id, "FINISHED", NOW * 1000)
        for _ in range(2):
            await follower.finish_round()
        assert _comparable(follower.current()) == _comparable(expected(server))
        assert not follower.problems
        assert {run_id for kind, run_id in follower.events() if kind == "training_started"} == set(server.points)
        await follower.finish_round()
        before = len(follower.records)
        await follower.finish_round()
        assert len(follower.records) == before, "a round without news finds nothing"

    asyncio.run(follow())


def _comparable(found: dict[tuple[str, str, int], float]) -> dict[tuple[str, str, int], str]:
    return {place: repr(value) for place, value in found.items()}


async def test_values_without_steps_are_counted() -> None:
    server = MemoryServer()
    follower = Follower(server)
    for place in range(5):
        server.log("a", "loss", place / 2, NOW * 1000 + place, 0)
        await follower.finish_round()
    assert follower.current() == {("a", "loss", place): place / 2 for place in range(5)}


async def test_a_job_that_repeats_steps_is_noticed_while_it_runs() -> None:
    server = MemoryServer(points_per_page=100)
    follower = Follower(server)
    for step in range(1, 9):
        server.log("a", "loss", 1.0, NOW * 1000 - 900 + step, step)
        server.log("a", "lr", 1.0, NOW * 1000 - 900 + step, step)
    await follower.finish_round()
    for step in range(3, 6):  # it has gone back, so the highest step stays
        server.log("a", "loss", 2.0, NOW * 1000 + step, step)
        server.log("a", "lr", 2.0, NOW * 1000 + step, step)
    await follower.finish_round()
    assert follower.current() == expected(server)


async def test_quiet_runs_cost_one_look_and_abandoned_ones_none() -> None:
    server = MemoryServer()
    follower = Follower(server)
    for key in ("loss", "lr", "mfu"):
        server.log("fresh", key, 1.0, NOW * 1000, 1)
        server.log("abandoned", key, 1.0, (NOW - 3 * 86_400) * 1000, 1)
    await follower.finish_round()
    server.asked = 0
    await follower.finish_round()
    assert server.asked == 1


async def test_ends_starts_and_facts() -> None:
    server = MemoryServer()
    follower = Follower(server)
    for run_id in ("good", "bad", "killed"):
        server.log(run_id, "loss", 1.0, NOW * 1000, 1)
    server.tags["good"] = {"lens.workload_uid": "job-7", "team": "x", "mlflow.parentRunId": "p", "mlflow.user": "me"}
    await follower.finish_round()
    for run_id, status in (("good", "FINISHED"), ("bad", "FAILED"), ("killed", "KILLED")):
        server.end(run_id, status, NOW * 1000)
    await follower.finish_round()
    server.status["good"] = "RUNNING"
    await follower.finish_round()
    ends = {("training_ended", "good"), ("training_failed", "bad"), ("training_failed", "killed")}
    starts = {("training_started", run_id) for run_id in ("good", "bad", "killed")}
    assert sorted(follower.events()) == sorted([*starts, *ends, ("resumed", "good")])
    codes = {record.run_id: record.details.get("exit_code") for record in follower.records if isinstance(record, Event)}
    assert codes["bad"] == 1
    assert codes["killed"] == 137
    facts = next(one for one in follower.records if isinstance(one, Evidence) and one.run_id == "good")
    assert facts.origin.workload_uid == "job-7"
    assert facts.facts["config"] == {"lr": "0.1"}
    assert facts.facts["tracker"]["url"] == f"{URL}/#/experiments/1/runs/good"
    assert facts.facts["tracker"]["tags"] == {"lens.workload_uid": "job-7", "team": "x"}
    assert facts.facts["tracker"]["parent"] == "p"
    assert {row.origin.workload_uid for row in follower.rows()} == {"job-7", "bad", "killed"}


async def test_changed_facts_are_told_again() -> None:
    server = MemoryServer()
    follower = Follower(server)
    server.log("a", "loss", 1.0, NOW * 1000, 1)
    await follower.finish_round()
    await follower.finish_round()
    server.tags["a"] = {"note": "late"}
    await follower.finish_round()
    assert [len(one.facts["tracker"].get("tags", {})) for one in follower.records if isinstance(one, Evidence)] == [
        0,
        1,
    ]


async def test_deleted_runs_are_let_go_and_restored_ones_come_back() -> None:
    server = MemoryServer()
    follower = Follower(server)
    server.log("a", "loss", 1.0, NOW * 1000, 1)
    await follower.finish_round()
    server.deleted.add("a")
    await follower.finish_round()
    assert follower.state.runs == {}
    server.deleted.clear()
    server.log("a", "loss", 2.0, NOW * 1000 + 5, 2)
    await follower.finish_round()
    assert follower.current() == expected(server)


async def test_a_run_that_ended_before_the_window_is_finished_if_it_was_followed() -> None:
    server = MemoryServer()
    follower = Follower(server)
    server.log("a", "loss", 1.0, NOW * 1000, 1)
    await follower.finish_round()
    server.log("a", "loss", 2.0, NOW * 1000, 2)
    server.log("unknown", "loss", 2.0, NOW * 1000, 2)
    for run_id in ("a", "unknown"):
        server.end(run_id, "FINISHED", (NOW - 10 * 86_400) * 1000)
    await follower.finish_round()
    assert follower.current() == {("a", "loss", 1): 1.0, ("a", "loss", 2): 2.0}
    assert follower.events()[-1] == ("training_ended", "a")
    await follower.finish_round()
    assert follower.state.runs == {}


async def test_the_machines_metrics_and_unwanted_ones_are_left_out() -> None:
    server = MemoryServer()
    follower = Follower(server, metrics=["lo*"])
    for key in ("loss", "system/gpu_0_utilization", "accuracy"):
        server.log("a", key, 1.0, NOW * 1000, 1)
    server.log("idle", "system/cpu", 1.0, NOW * 1000, 1)
    await follower.finish_round()
    assert {name for row in follower.rows() for name in row.values} == {"loss"}
    assert list(follower.state.runs) == ["a"], "a run without metrics is no training"


async def test_a_metric_that_is_refused_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    server = MemoryServer()
    follower = Follower(server)
    for key in ("loss", "odd"):
        server.log("a", key, 1.0, NOW * 1000, 1)
    server.log("b", "loss", 1.0, NOW * 1000, 1)
    refuse_history(server, monkeypatch, "odd", LensError("the disk is full"))
    await follower.finish_round()
    assert follower.problems == ["the disk is full"]
    monkeypatch.undo()
    await follower.finish_round()
    assert follower.current() == expected(server)


def refuse_history(server: MemoryServer, monkeypatch: pytest.MonkeyPatch, key: str, error: Exception) -> None:
    """Let the server fail for one metric."""
    real = server.history

    async def history(run_id: str, asked: str, token: str) -> PointPage:
        if asked == key:
            raise error
        return await real(run_id, asked, token)

    monkeypatch.setattr(server, "history", history)
