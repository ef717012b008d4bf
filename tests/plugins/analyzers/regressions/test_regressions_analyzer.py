"""The analyzer of regressions over a store in memory: each finding once, old ones never."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import numpy as np
from lens_plugins.analyzers.regressions import Regressions
from lens_plugins.analyzers.regressions.analyzer import RegressionsSettings
from lens_plugins.analyzers.regressions.job import choose_metrics

from lens_core import Event, Evidence, Measurement, Origin, PointQuery, Record, StepMetrics
from lens_core.plugin_api.components import IngestRequest
from lens_core.plugin_api.store import measured_uid
from lens_core.testing import MemoryStore, check_analyzer, make_context
from tests.plugins.sinks.postgresql.support import Spool, running_store

UID = "job"


def rows(losses: np.ndarray, first: int, begin: float, session: str, rate: float = 3e-4) -> list[Record]:
    return [
        StepMetrics(
            origin=Origin(workload_uid=UID),
            data_source="wandb",
            run_id="run",
            session=session,
            row_step=first + index,
            values={"train/loss": float(value), "train/learning_rate": rate, "val/loss": 9.0},
            event_time=begin + 10.0 * index,
        )
        for index, value in enumerate(losses)
    ]


def wrong_restore(now: float) -> list[Record]:
    """A run that spikes, dies, and goes on with other losses and another learning rate."""
    losses = np.random.default_rng(0).normal(2.2, 0.014, 400)
    return [
        *rows(losses, 201, now - 8000, "a"),
        *rows(losses[300:] + 0.05, 501, now - 3000, "b", rate=3.1e-4),
    ]


def make(folder: Path, **settings: float) -> Regressions:
    return Regressions(RegressionsSettings(longest_rest_seconds=0, **settings), make_context("regressions", folder))


def types(records: list[Record]) -> list[str]:
    return [record.type for record in records if isinstance(record, Event)]


async def test_the_analyzer_keeps_the_contract(tmp_path: Path) -> None:
    await check_analyzer(make(tmp_path), MemoryStore(tmp_path, wrong_restore(time.time())), expects=2)


async def test_findings_become_events_once(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, wrong_restore(time.time()))
    analyzer = make(tmp_path)
    analyzer.store = store
    await analyzer.start()
    first = [*await analyzer.analyze([UID])]
    assert types(first) == ["learning_rate_differs", "restore_differs"]
    again = [*await analyzer.analyze([UID])]  # they were not stored
    assert types(again) == types(first)
    await analyzer.stored()
    assert not await analyzer.analyze([UID])
    later = make(tmp_path)
    later.store = store
    await later.start()
    assert not await later.analyze([UID])


async def test_old_findings_are_answered_and_become_no_events(tmp_path: Path) -> None:
    analyzer = make(tmp_path)
    analyzer.store = MemoryStore(tmp_path, wrong_restore(time.time() - 90 * 86400))
    await analyzer.start()
    assert not await analyzer.analyze([UID])
    [route] = analyzer.routes()
    request = IngestRequest(body=b"", path="/", method="GET", headers={}, query={}, path_parameters={"uid": UID})
    [run] = (await route.handler(request)).body["runs"]
    assert [found["type"] for found in run["findings"]] == ["learning_rate_differs", "restore_differs"]
    assert run["replay"]["outcome"] == "shifted"


async def test_the_same_out_of_postgresql(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(*wrong_restore(time.time()))
        analyzer = make(tmp_path)
        analyzer.store = store
        await analyzer.start()
        assert types([*await analyzer.analyze([UID])]) == ["learning_rate_differs", "restore_differs"]


async def test_a_full_host_and_clipped_gradients_out_of_postgresql(tmp_path: Path, postgres_dsn: str) -> None:
    """The clip value comes from the configuration, the memory from what the host collector measured."""
    begin = time.time() - 20_000
    random = np.random.default_rng(0)
    norms = random.uniform(0.2, 0.9, 1200)
    norms[700::8] = 2.0
    job = [
        StepMetrics(
            origin=Origin(workload_uid=UID, node="gpu-17"),
            data_source="wandb",
            run_id="run",
            row_step=step,
            values={"loss": 2.0 + 0.01 * random.standard_normal(), "grad_norm": float(norm)},
            event_time=begin + 10.0 * step,
        )
        for step, norm in enumerate(norms, 300)
    ]
    memory = [
        Measurement(
            origin=Origin(node=node),
            name="host.memory.used_pct",
            value=20.0 + growth * step,
            event_time=begin + 3000.0 + 60.0 * step,
        )
        for step in range(200)
        for node, growth in (("gpu-17", 0.2), ("gpu-18", 0.3))
    ]
    facts = {"wandb": {"config": {"max_grad_norm": "1.0"}}}
    evidence = Evidence(origin=Origin(workload_uid=UID), source="wandb", facts=facts)
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(*job, *memory, evidence)
        analyzer = make(tmp_path)
        analyzer.store = store
        await analyzer.start()
        events = [event for event in await analyzer.analyze([UID]) if isinstance(event, Event)]
        nodes = tuple(measured_uid(Origin(node=node)) for node in ("gpu-17", "gpu-18", "gpu-19"))
        query = PointQuery(
            workload_uid=nodes[0], others=nodes[1:], is_by_workload=True, aggregate="max", interval_ms=86_400_000
        )
        answered = {piece.run_id: list(piece.values) async for piece in store.metric_columns(query)}
        assert sorted(answered) == list(nodes[:2]), "each node has a curve of its own"
        assert [max(answered[node]) > 70 for node in nodes[:2]] == [False, True]
    found = {event.type: event.details for event in events}
    assert sorted(found) == ["clipping", "host_memory_creep"]
    assert found["clipping"]["clip_value"] == 1.0
    assert found["host_memory_creep"]["node"] == "gpu-17"
    assert 2 < found["host_memory_creep"]["hours_left"] < 4


def test_metrics_of_evaluations_play_no_role() -> None:
    assert choose_metrics(["val/loss", "train/loss", "eval/grad_norm", "lr"]) == {
        "loss": "train/loss",
        "learning_rate": "lr",
    }
    assert choose_metrics(["test_loss_total", "lm_loss", "loss"]) == {"loss": "lm_loss"}


async def test_a_job_is_compared_with_its_siblings_in_the_store(tmp_path: Path) -> None:
    now = time.time()
    records = []
    for number in range(5):
        noise = np.random.default_rng(number)
        losses = 2.2 + 3 * np.exp(-np.arange(400) / 80) + noise.normal(0, 0.004, 400) + (0.3 if number == 4 else 0.0)
        own = rows(losses, 1, now - 9000, "a")
        origin = Origin(workload_uid=f"llama-run{number}")
        records += [msgspec.structs.replace(row, origin=origin) for row in own]
    store = MemoryStore(tmp_path, records)
    analyzer = make(tmp_path)
    analyzer.store = store
    assert types([*await analyzer.analyze(["llama-run4"])]) == ["loss_off"]
    assert types([*await analyzer.analyze(["llama-run1"])]) == []
