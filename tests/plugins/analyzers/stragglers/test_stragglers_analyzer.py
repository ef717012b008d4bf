"""The analyzer of stragglers over a store in memory."""

from __future__ import annotations

import math
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.stragglers import Stragglers
from lens_plugins.analyzers.stragglers.analyzer import StragglersSettings
from lens_plugins.analyzers.stragglers.job import INTERVALS, choose_times, read_ranks, start_of_reading, windows_of
from lens_plugins.analyzers.stragglers.verdict import WINDOWS

from lens_core import Event, Evidence, Measurement, Origin, Record, RunSummary, StepMetrics
from lens_core.plugin_api.components import IngestRequest
from lens_core.testing import MemoryStore, check_analyzer, make_context
from tests.generated import examples
from tests.plugins.sinks.postgresql.support import Spool, running_store

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
    for evidence, stage in (([], None), ([config], 3)):
        analyzer = make(tmp_path, MemoryStore(tmp_path, [*rows({6: 1.5, 7: 1.5}), *evidence]))
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


async def test_all_ranks_of_postgresql_in_one_question_are_those_of_a_store_that_is_asked_for_each(
    tmp_path: Path, postgres_dsn: str
) -> None:
    """Rows of no rank, of another attempt and values that are not finite are among them."""
    records = [*rows({5: 1.5}), *rows({}, first=251, count=60, metric="backward_time")]
    first = records[0]
    assert isinstance(first, StepMetrics)
    records += [
        msgspec.structs.replace(first, origin=Origin(workload_uid=UID), session="none"),
        msgspec.structs.replace(first, row_step=300, values={"forward_time": math.inf}, sequence=300),
    ]
    for rank in range(2):
        origin = Origin(workload_uid=UID, rank=rank)
        records.append(
            msgspec.structs.replace(first, origin=origin, session=f"old{rank}", event_time=time.time() - 9000)
        )
    expected = await read_ranks(MemoryStore(tmp_path / "memory", records), UID)
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(*records)
        found = await read_ranks(store, UID)
    assert expected is not None
    assert found is not None
    assert len(found.windows) > WINDOWS
    assert found.time == pytest.approx(expected.time, abs=0.01)  # stores round milliseconds in their own way
    assert msgspec.structs.replace(found, time=expected.time) == expected


def test_a_rank_that_fell_silent_long_ago_has_nothing_old_read_of_the_others() -> None:
    def stream(rank: int, rows: int, begin: int, end: int) -> RunSummary:
        return RunSummary(
            run_id="run",
            attempt=1,
            data_source="wandb",
            rank=rank,
            rows=rows,
            first_iteration=1,
            last_iteration=rows,
            target_iteration=None,
            first_seen=begin,
            last_seen=end,
        )

    going = [stream(rank, 10_000, 0, 10_000_000) for rank in range(4)]
    newest = start_of_reading(going)
    assert newest > 9_000_000
    assert start_of_reading([*going, stream(4, 500, 0, 500_000)]) == newest
    late = stream(5, 100, 9_900_000, 10_000_000)
    slow = stream(6, 1000, 0, 10_000_000)
    assert start_of_reading([*going, late]) == newest
    assert start_of_reading([*going, slow]) < newest


@settings(max_examples=examples(50))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400), st.floats(0, 1e6) | st.just(math.nan)), max_size=600),
    st.integers(0, 400),
)
def test_windows_are_the_medians_of_each_rank(points: list[tuple[int, int, float]], dense: int) -> None:
    """Each rank logs each step at most once; the first rank logs many in a row."""
    values = {(0, step): float(step % 7) for step in range(dense)} | {
        (rank, step): value for rank, step, value in points
    }
    by_rank: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for rank in sorted({rank for rank, _ in values}):
        own = sorted((step, value) for (of, step), value in values.items() if of == rank)
        by_rank[rank] = np.array([step for step, _ in own], dtype=np.int64), np.array([value for _, value in own])
    windows, newest = windows_of({"compute": by_rank})
    steps = sorted({step for _, step in values})
    assert newest == (steps[-1] if steps else 0)
    count = min(WINDOWS + 1, len(steps) // INTERVALS)
    assert len(windows) == count
    for number, window in enumerate(windows):
        begin = len(steps) - (count - number) * INTERVALS
        part = steps[begin : begin + INTERVALS]
        for rank in by_rank:
            finite = [values[rank, step] for step in part if math.isfinite(values.get((rank, step), math.nan))]
            if len(finite) < INTERVALS // 2:
                assert rank not in window.compute
            else:
                assert window.compute[rank] == np.median(finite)
