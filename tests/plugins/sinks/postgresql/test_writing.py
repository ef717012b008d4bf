"""Rows in, rows out: exactly once, whatever is redelivered, whatever the values are."""

from __future__ import annotations

import asyncio
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.sinks.postgresql.metrics import StoreMetrics

from lens_core import Delivered, Origin, Position, Rejected, StepMetrics
from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store


async def test_what_was_written_is_read(store: Any, spool: Spool) -> None:
    await spool.deliver(row(0, values={"loss": 0.5, "accuracy": 0.25}), row(1, values={"loss": 0.4}))
    found = await points(store)
    assert [(p.metric_name, p.iteration, p.value) for p in found] == [
        ("accuracy", 0, 0.25),
        ("loss", 0, 0.5),
        ("loss", 1, 0.4),
    ]
    assert [(p.timestamp, p.data_source, p.run_id, p.attempt) for p in found[:1]] == [
        (1_700_000_000_000, "wandb", "run-1", 1)
    ]


async def test_ten_thousand_rows_are_there_exactly_once_when_batches_come_again(store: Any, postgres_dsn: str) -> None:
    spool = Spool(store)
    batches = [spool.batch(*(row(step) for step in range(first, first + 1000))) for first in range(0, 10_000, 1000)]
    for number, batch in enumerate(batches):
        assert isinstance(await store.send(batch), Delivered)
        assert isinstance(await store.send(batches[number // 2]), Delivered)
    again = Spool(store, "another spool with the same rows")
    for batch in batches[::-1]:
        await again.deliver(*batch.records)
    found = await points(store, metrics=("loss",))
    assert [p.iteration for p in found] == list(range(10_000))
    assert [(s.name, s.count) for s in await store.metric_sources("workload-1")] == [("wandb", 10_000)]
    assert [(m.name, m.count) for m in await store.available_metrics("workload-1", "")] == [("loss", 10_000)]
    assert ask(
        postgres_dsn, "select count(*) from lens_row where history is not null or key_sequences is not null"
    ) == [(0,)]


async def test_the_position_is_the_end_of_the_last_batch(store: Any, spool: Spool) -> None:
    assert await store.position("spool-1") is None
    await spool.deliver(row(0), row(1))
    assert await store.position("spool-1") == Position(1, 2)
    assert await store.position("another") is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.1, 0.0, 1e22, 123456789.123456789])
async def test_every_float_comes_back(store: Any, spool: Spool, value: float) -> None:
    await spool.deliver(row(0, values={"loss": value, "null": 1.0}))
    (found,) = await points(store, metrics=("loss",))
    assert found.value == value or (math.isnan(found.value) and math.isnan(value))


async def test_special_values_are_strings_in_the_table(spool: Spool, postgres_dsn: str) -> None:
    await spool.deliver(row(0, values={"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.0}))
    assert ask(postgres_dsn, "select metrics from lens_row") == [
        ({"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 0.0},)
    ]


NAMES = [
    "損失/训练",
    "a\x00b",
    "lone \ud800 surrogate",
    "tab\tand\nline",
    'quote"s\\',
    "null",
    "",
    "x" * 5000,
    "x" * 5001,
]


async def test_every_name_is_stored(store: Any, spool: Spool) -> None:
    await spool.deliver(row(0, values={name: float(number) for number, name in enumerate(NAMES)}))
    found = {p.metric_name: p.value for p in await points(store)}
    assert sorted(found.values()) == [float(number) for number in range(len(NAMES))]
    assert found["損失/训练"] == 0.0
    assert found["a\ufffdb"] == 1.0
    assert found["lone \ufffd surrogate"] == 2.0
    assert found["tab\tand\nline"] == 3.0
    (asked,) = await points(store, metrics=("x" * 5001,))
    assert asked.value == 8.0


async def test_metrics_with_the_names_of_metadata_are_metrics(store: Any, spool: Spool, postgres_dsn: str) -> None:
    values = {"step": 1.0, "_step": 2.0, "history": 3.0, "__run_id": 4.0, "created_at": 5.0}
    await spool.deliver(row(7, values=values))
    assert {p.metric_name: p.value for p in await points(store)} == values
    assert {m.name for m in await store.available_metrics("workload-1", "")} == set(values)
    ((performance,),) = ask(postgres_dsn, "select performance from training_performance")
    assert (performance["step"], performance["_step"], performance["__step"]) == (7, 1.0, 2.0)
    names = ask(postgres_dsn, "select name, value from metrics_storage order by value")
    assert dict(names) == values


@pytest.mark.parametrize("step", [2**63 - 1, -(2**63) + 1, 2**40, -1])
async def test_steps_of_64_bits(store: Any, spool: Spool, step: int) -> None:
    await spool.deliver(row(step, iteration=step))
    await spool.deliver(row(0))
    assert sorted(p.iteration for p in await points(store)) == sorted([step, 0])


async def test_what_cannot_be_stored_loses_no_other(store: Any, spool: Spool) -> None:
    answer = await spool.send(
        row(0),
        row(2**63),
        row(1, origin=Origin()),
        row(2, run_id="r" * 600),
        row(3, sequence=2**64),
        row(4, attempt=2**31),
        row(5),
    )
    assert isinstance(answer, Rejected)
    assert sorted(answer.items) == [1, 2, 3, 4, 5]
    assert [p.iteration for p in await points(store)] == [0, 5]
    assert await store.position("spool-1") == Position(1, 7)


async def test_ten_thousand_metrics_in_a_row(store: Any, spool: Spool) -> None:
    await spool.deliver(row(0, values={f"layer.{number}/norm": float(number) for number in range(10_000)}))
    assert len(await store.available_metrics("workload-1", "wandb")) == 10_000
    (found,) = await points(store, metrics=("layer.9999/norm",))
    assert found.value == 9999.0


async def test_ranks_sources_and_runs_never_overwrite_each_other(store: Any, spool: Spool) -> None:
    ranks = [Origin(workload_uid="workload-1", rank=rank) for rank in (0, 1)]
    await spool.deliver(
        row(0, origin=ranks[0], values={"loss": 1.0}),
        row(0, origin=ranks[1], values={"loss": 2.0}),
        row(0, data_source="tensorflow", values={"loss": 3.0}),
        row(0, run_id="run-2", values={"loss": 4.0}),
    )
    assert sorted(p.value for p in await points(store)) == [1.0, 2.0, 3.0, 4.0]
    assert [p.value for p in await points(store, data_source="tensorflow")] == [3.0]
    assert [p.value for p in await points(store, run_id="run-2")] == [4.0]


async def test_a_time_that_is_none_is_the_time_of_receipt(store: Any, spool: Spool) -> None:
    for step, time in enumerate((None, math.nan, math.inf, 1e300, -1e300)):
        await spool.deliver(row(step, event_time=time))
    assert all(p.timestamp > 1_700_000_000_000 for p in await points(store))


async def test_two_stores_write_the_same_rows_at_one_time(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn) as one, running_store(tmp_path, postgres_dsn) as other:
        rows: list[StepMetrics] = [row(step, session="s", values={"loss": float(step)}) for step in range(500)]
        spools = [Spool(one, "one"), Spool(other, "other")]
        await asyncio.gather(*(spool.deliver(*rows[at : at + 100]) for at in range(0, 500, 100) for spool in spools))
        assert len(await points(one)) == 500
        assert {p.attempt for p in await points(other)} == {1}


async def test_what_was_saved_is_counted_under_bounded_labels(store: Any, spool: Spool) -> None:
    await spool.deliver(row(0, values={"a": 1.0, "b": 2.0}), row(0, data_source="mine"), row(1, data_source="log"))
    metrics = store.context.metrics
    saved = {source: metrics.group(StoreMetrics).rows.value(data_source=source) for source in ("wandb", "log", "other")}
    assert saved == {"wandb": 1.0, "log": 1.0, "other": 1.0}
    assert metrics.group(StoreMetrics).wandb_points.value() == 2.0


async def test_the_log_says_what_primus_lens_says(store: Any, spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await spool.deliver(row(1), row(2), row(3, data_source="log"))
    assert "✓ WandB metrics stored to MetricsStorage: 2 success" in caplog.messages
    assert caplog.messages.count("✓ Updated WandB training data for workload workload-1") == 1


async def test_a_sender_that_knows_pod_and_workload_teaches_whose_the_pod_is(store: Any, spool: Spool) -> None:
    both = Origin(workload_uid="job1", pod_uid="pod-x")
    of_pod = row(1, origin=Origin(pod_uid="pod-x"), data_source="log", run_id="", values={"other": 1.0})
    await spool.deliver(row(1, origin=both), of_pod)
    found = await points(store, workload_uid="job1")
    assert {point.data_source for point in found} == {"wandb", "log"}
    assert [workload.workload_uid for workload in (await store.workloads()).workloads] == ["job1"]


async def test_a_stream_knows_the_iterations_and_times_of_rows_that_are_written_again(
    spool: Spool, postgres_dsn: str
) -> None:
    of_stream = "select own_iterations, first_iteration, last_iteration, first_seen_us, last_seen_us from lens_stream"
    await spool.deliver(row(5), row(6))
    assert ask(postgres_dsn, of_stream) == [(False, 5, 6, 1_700_000_005_000_000, 1_700_000_006_000_000)]
    await spool.deliver(row(5, iteration=70, event_time=1_700_000_100.0, sequence=100, values={"loss": 2.0}))
    assert ask(postgres_dsn, of_stream) == [(True, 5, 70, 1_700_000_005_000_000, 1_700_000_100_000_000)]
    await spool.deliver(row(6, iteration=2, event_time=1_700_000_001.0, sequence=100))
    assert ask(postgres_dsn, of_stream) == [(True, 2, 70, 1_700_000_001_000_000, 1_700_000_100_000_000)]
