"""The analyzer of stragglers over a store in memory."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from lens_plugins.analyzers.stragglers import Stragglers
from lens_plugins.analyzers.stragglers.analyzer import StragglersSettings
from lens_plugins.analyzers.stragglers.job import choose_times

from lens_core import Event, Evidence, Measurement, Origin, Record, StepMetrics
from lens_core.plugin_api.components import IngestRequest
from lens_core.testing import MemoryStore, check_analyzer, make_context

UID = "job"


def rows(slow: dict[int, float], first: int = 1, count: int = 250, metric: str = "forward_time") -> list[Record]:
    """Rows of eight ranks; some need longer by a factor."""
    begin = time.time() - 3000
    noise = np.random.default_rng(first)
    return [
        StepMetrics(
            origin=Origin(workload_uid=UID, rank=rank, node=f"node-{rank // 4}"),
            data_source="wandb",
            run_id="run",
            session=f"s{rank}",
            row_step=step,
            values={metric: float(noise.normal(100, 2)) * slow.get(rank, 1.0), "step_time": 300.0},
            event_time=begin + step,
        )
        for rank in range(8)
        for step in range(first, first + count)
    ]


def make(folder: Path, store: MemoryStore) -> Stragglers:
    analyzer = Stragglers(StragglersSettings(longest_rest_seconds=0), make_context("stragglers", folder))
    analyzer.store = store
    return analyzer


async def test_the_analyzer_keeps_the_contract(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, rows({5: 1.5}))
    await check_analyzer(make(tmp_path, store), store, expects=2)


async def test_a_slow_rank_is_reported_once_and_when_it_is_over(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, rows({5: 1.5}))
    analyzer = make(tmp_path, store)
    found = [*await analyzer.analyze([UID])]
    await analyzer.stored()
    [event] = [one for one in found if isinstance(one, Event)]
    assert (event.type, event.origin.rank, event.details["kind"]) == ("straggler", 5, "straggler")
    [series] = [one for one in found if isinstance(one, Measurement)]
    assert (series.name, series.tags) == ("lens_straggler_ratio", {"rank": "5"})
    assert not [one for one in await analyzer.analyze([UID]) if isinstance(one, Event)]
    await analyzer.stored()
    store.hold(rows({}, first=251, count=300))
    [over] = await analyzer.analyze([UID])
    assert isinstance(over, Event)
    assert over.type == "straggler_gone"


async def test_a_heavy_stage_of_the_pipeline_is_named(tmp_path: Path) -> None:
    """The last two of eight ranks are slow: by the run's configuration they are a stage."""
    facts = {"wandb": {"config": {"pipeline_model_parallel_size": 4}}}
    config = Evidence(origin=Origin(workload_uid=UID), source="wandb", facts=facts)
    for given, stage in (([], None), ([config], 3)):
        analyzer = make(tmp_path, MemoryStore(tmp_path, [*rows({6: 1.5, 7: 1.5}), *given]))
        [event] = [one for one in await analyzer.analyze([UID]) if isinstance(one, Event)]
        assert (event.type, event.details["kind"], event.details.get("stage")) == ("imbalance", "imbalance", stage)


async def test_step_times_alone_are_unknown_with_advice(tmp_path: Path) -> None:
    analyzer = make(tmp_path, MemoryStore(tmp_path, rows({5: 1.5}, metric="loss")))
    assert not await analyzer.analyze([UID])
    [route] = analyzer.routes()
    request = IngestRequest(body=b"", path="/", method="GET", headers={}, query={}, path_parameters={"uid": UID})
    answer = (await route.handler(request)).body
    assert answer["verdict"]["kind"] == "unknown"
    assert "step times cannot tell" in answer["verdict"]["advice"]
    assert answer["metrics"] == {"step": "step_time"}


def test_metrics_play_the_roles_of_their_names() -> None:
    names = ["time/forward_ms", "timing.backward", "time_metrics/data_loading(s)", "step_time"]
    assert choose_times(names) == {
        "compute": "time/forward_ms",
        "waiting": "timing.backward",
        "data": "time_metrics/data_loading(s)",
        "step": "step_time",
    }
    assert choose_times(["loss"]) == {}
