from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.http.page.summary import (
    LOSS,
    MEMORY,
    NO_MEMORY,
    SPARK_POINTS,
    THROUGHPUT,
    choose_name,
    newest_attempt,
    spark,
    time_left,
)
from lens_core.model.queries import EventRow, MetricPoint, RunSummary, WorkloadSummary
from lens_core.plugin_api.overview import Overview, line_of, state_of


def points(values: list[float], run_id: str = "r", begin: int = 0) -> list[MetricPoint]:
    return [MetricPoint("loss", value, begin + place, place, "wandb", run_id, 1) for place, value in enumerate(values)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["eval/loss", "train/loss", "lr"], "train/loss"),
        (["lm_loss", "loss"], "lm_loss"),
        (["val_loss"], "val_loss"),
        (["loss_scale", "accuracy"], None),
    ],
)
def test_the_loss_is_the_one_of_the_training(names: list[str], expected: str | None) -> None:
    assert choose_name(names, LOSS) == expected


def test_throughput_and_memory() -> None:
    names = ["mem_free", "mem_total", "mem_usage", "perf/tokens_per_sec", "lr"]
    assert choose_name(names, THROUGHPUT) == "perf/tokens_per_sec"
    assert choose_name(names, MEMORY, NO_MEMORY) == "mem_usage"
    assert choose_name(["mem_free"], MEMORY, NO_MEMORY) is None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=500))
def test_a_spark_is_short_and_hides_no_value_that_is_none(values: list[float]) -> None:
    found = spark(points(values))
    assert len(found) == min(SPARK_POINTS, len(values))
    has_special = any(not math.isfinite(value) for value in values)
    assert any(isinstance(value, str) for value in found) == has_special


def test_a_spike_of_one_step_is_in_the_spark() -> None:
    values = [1.0] * 10_000
    values[4321] = 50.0
    assert 50.0 in spark(points(values))


def test_the_spark_is_of_the_newest_attempt() -> None:
    mixed = points([1.0, 2.0], "old") + points([3.0, 4.0], "new", begin=100)
    assert [point.value for point in newest_attempt(mixed)] == [3.0, 4.0]
    assert newest_attempt([]) == []


def run(first: int | None, last: int | None, target: int | None, seconds: int = 100) -> RunSummary:
    return RunSummary(
        run_id="r",
        attempt=1,
        data_source="log",
        rank=None,
        rows=1,
        first_iteration=first,
        last_iteration=last,
        target_iteration=target,
        first_seen=0,
        last_seen=seconds * 1000,
    )


def test_time_left() -> None:
    assert time_left([]) == (None, None, None)
    assert time_left([run(0, 100, 300)]) == (1.0, 300, 200.0)
    assert time_left([run(0, 100, None)]) == (1.0, None, None)
    assert time_left([run(5, 5, 10, 0)]) == (None, 10, None)
    assert time_left([run(0, 500, 300)]) == (5.0, 300, 0.0)


def line(
    event: str = "", at: int = 0, last_row: int = 0, target: int | None = None, row_ms: int | None = None
) -> Overview:
    summary = WorkloadSummary(
        workload_uid="w",
        name="w",
        namespace="",
        cluster="",
        rows=1,
        last_iteration=10,
        first_seen=0,
        last_seen=last_row,
    )
    return Overview(
        summary=summary,
        event=event,
        event_at=at if event else None,
        last_row=last_row,
        target_iteration=target,
        row_ms=row_ms,
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (line(last_row=950_000), "running"),
        (line(last_row=100_000), "silent"),
        (line(last_row=800_000, row_ms=90_000), "running"),
        (line(last_row=700_000, row_ms=90_000), "silent"),
        (line(last_row=100_000, target=10), "ended"),
        (line("training_failed", 940_000, 939_000), "failed"),
        (line("out_of_memory", 940_000, 950_000), "running"),
        (line("stalled", 940_000, 800_000), "stalled"),
        (line("training_ended", 940_000, 941_000), "ended"),
        (line("resumed", 940_000, 950_000), "running"),
    ],
)
def test_how_a_workload_is_doing(seen: Overview, expected: str) -> None:
    assert state_of(seen, 1_000_000) == expected


def test_a_line_of_any_store() -> None:
    events = [
        EventRow(type=kind, timestamp=at, iteration=at, run_id="", attempt=None, data_source="log", details={})
        for kind, at in (("checkpoint_saved", 5), ("stalled", 4), ("training_started", 1))
    ]
    found = line_of(line().summary, [run(0, 1, 9)], events)
    assert (found.event, found.event_at, found.target_iteration, found.last_row) == ("stalled", 4, 9, 100_000)
    assert found.row_ms is None
    slow = msgspec.structs.replace(run(0, 1, 9), rows=3)
    assert line_of(line().summary, [slow], []).row_ms == 50_000
