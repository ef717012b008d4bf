"""Analyzers under the runner of collectors, and in a daemon with a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lens_core import Analyzer, Event, LensError, Measurement, NoSettings, Origin, Record, Reply, Route, StepMetrics
from lens_core.pipeline.analyzing import AnalyzerPoll
from lens_core.pipeline.collecting import CollectorRunner
from lens_core.pipeline.ingest_gate import IngestGate
from lens_core.plugin_api.components import IngestRequest
from lens_core.testing import LensFactory, MemoryStore, check_analyzer, make_context


def row(uid: str, step: int) -> StepMetrics:
    return StepMetrics(
        origin=Origin(workload_uid=uid), data_source="log", row_step=step, values={"loss": 1.0}, event_time=1e9 + step
    )


class Counting(Analyzer):
    """Counts the rows of each workload that changed."""

    name = "counting"
    interval_seconds = 0.2

    def __init__(self, settings: NoSettings, context: object) -> None:
        super().__init__(settings, context)  # type: ignore[arg-type]
        self.looks: list[list[str]] = []
        self.fails = False

    async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
        self.looks.append(sorted(changed))
        if self.fails:
            raise LensError("it broke")
        found: list[Record] = []
        for uid in changed:
            detail = await self.store.workload(uid)
            if detail is not None and detail.summary.rows:
                origin = Origin(workload_uid=uid)
                found.append(Measurement(origin=origin, name="counting.rows", value=float(detail.summary.rows)))
                found.append(Event(origin=origin, type="counted", event_time=1e9, details={"by": "counting"}))
        return found

    def routes(self) -> Sequence[Route]:
        return [Route(paths=["/workloads/{uid:path}/looks"], handler=self._looks, methods=["GET"], role="read")]

    async def _looks(self, request: IngestRequest) -> Reply:
        return Reply(body={"uid": request.path_parameters["uid"], "looks": len(self.looks)})


class Keeping(IngestGate):
    """A gate that keeps what it gets."""

    kept: list[Record]

    async def submit(self, records: Sequence[Record], **_: object) -> None:
        self.kept = [*getattr(self, "kept", []), *records]


def make(folder: Path, store: MemoryStore) -> tuple[CollectorRunner, Counting, Keeping]:
    analyzer = Counting(NoSettings(), make_context("counting", folder))
    analyzer.store = store
    gate = Keeping("counting", [], metrics=analyzer.context.metrics)
    runner = CollectorRunner(
        AnalyzerPoll(analyzer), gate, interval_seconds=60, timeout_seconds=5, plugin_name="counting"
    )
    return runner, analyzer, gate


async def test_only_workloads_that_changed_are_looked_at(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, [row("a", 1), row("b", 1)])
    runner, analyzer, gate = make(tmp_path, store)
    assert await runner.collect_once()
    assert await runner.collect_once()
    store.hold([row("b", 2)])
    assert await runner.collect_once()
    assert analyzer.looks == [["a", "b"], [], ["b"]]
    assert [record.value for record in gate.kept if isinstance(record, Measurement)] == [1.0, 1.0, 2.0]


async def test_after_a_failure_the_same_workloads_come_again(tmp_path: Path) -> None:
    runner, analyzer, _ = make(tmp_path, MemoryStore(tmp_path, [row("a", 1)]))
    analyzer.fails = True
    assert not await runner.collect_once()
    assert (runner.errors, runner.last_error) == (1, "it broke")
    analyzer.fails = False
    assert await runner.collect_once()
    assert analyzer.looks == [["a"], ["a"]]


async def test_a_new_start_goes_on_from_where_it_was(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, [row("a", 1)])
    await make(tmp_path, store)[0].collect_once()
    store.hold([row("b", 1)])
    runner, analyzer, _ = make(tmp_path, store)
    assert await runner.collect_once()
    assert analyzer.looks == [["b"]]
    (tmp_path / "changes.json").write_text("no JSON")
    runner, analyzer, _ = make(tmp_path, store)
    assert await runner.collect_once()
    assert analyzer.looks == [["a", "b"]]


async def test_the_contract_check_finds_what_an_analyzer_does_wrong(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, [row("a", 1)])

    class Growing(Counting):
        """Finds more each time."""

        async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
            await super().analyze(changed)
            await self.store.events("a")
            return [Measurement(name="n", value=1.0)] * len(self.looks)

    class Wild(Counting):
        """Raises what nobody expects when the store is away."""

        async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
            try:
                return await super().analyze(changed)
            except LensError as error:
                raise KeyError("wild") from error

    await check_analyzer(Counting(NoSettings(), make_context("counting", tmp_path)), store, expects=2)
    for kind, message in ((Growing, "found more"), (Wild, "wild")):
        with pytest.raises(AssertionError, match=message):
            await check_analyzer(kind(NoSettings(), make_context("counting", tmp_path)), store)


async def test_an_analyzer_in_a_daemon_answers_routes_and_its_events_arrive(
    lens: LensFactory, postgres_dsn: str
) -> None:
    store = {"type": "postgresql", "dsn": postgres_dsn}
    running = await lens(Counting, config={"sinks": {"store": store}})
    await running.send([row("job-1", 1), row("job-1", 2)])
    [event, *_] = await running.wait_for_records(1, Event)
    assert (event.type, event.origin.workload_uid) == ("counted", "job-1")
    assert (await running.get_json("/workloads/job-1/looks"))["uid"] == "job-1"
    status = await running.get_json("/status")
    [one] = [source for source in status["sources"] if source["name"] == "counting"]
    assert (one["type"], one["state"], one["last_error"], one["pipelines"]) == ("counting", "running", "", ["default"])


async def test_series_that_no_sink_takes_are_not_produced(tmp_path: Path) -> None:
    analyzer = Counting(NoSettings(), make_context("counting", tmp_path))
    analyzer.store = MemoryStore(tmp_path, [row("a", 1)])
    found = await AnalyzerPoll(analyzer, lambda kind: kind is not Measurement).collect()
    assert [type(record) for record in found] == [Event]


async def test_without_a_store_there_is_no_analyzer(lens: LensFactory) -> None:
    running = await lens(Counting)
    status = await running.get_json("/status")
    assert "counting" not in [source["name"] for source in status["sources"]]
