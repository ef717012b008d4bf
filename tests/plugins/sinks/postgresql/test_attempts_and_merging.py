"""Rows of one key are one row; sessions become attempts; ranks of a log share a row."""

from __future__ import annotations

import itertools
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lens_core import Origin, StepMetrics
from tests.generated import examples
from tests.plugins.sinks.postgresql.support import Spool, ask, points, row

RUNS = itertools.count(100)
LOG_RANKS = [Origin(workload_uid="workload-1", pod_uid=f"pod-{rank}", rank=rank) for rank in range(4)]


async def test_a_step_that_is_logged_again_merges_and_keeps_what_it_overwrites(
    spool: Spool, store: Any, postgres_dsn: str
) -> None:
    await spool.deliver(row(3, values={"loss": 0.6, "accuracy": 0.93}, sequence=1, event_time=100.0))
    await spool.deliver(row(3, values={"loss": 0.5}, sequence=2, event_time=160.0))
    assert {p.metric_name: p.value for p in await points(store)} == {"loss": 0.5, "accuracy": 0.93}
    ((performance,),) = ask(postgres_dsn, "select performance from training_performance")
    assert performance["loss"] == 0.5
    assert [(entry["loss"], entry["sequence"], entry["step"]) for entry in performance["history"]] == [(0.6, 1, 3)]
    assert performance["created_at"].startswith("1970-01-01T00:01:40")
    assert performance["updated_at"].startswith("1970-01-01T00:02:40")
    assert [(m.name, m.count) for m in await store.available_metrics("workload-1", "")] == [
        ("accuracy", 1),
        ("loss", 1),
    ]


async def test_a_sequence_that_was_seen_changes_nothing(spool: Spool, store: Any, postgres_dsn: str) -> None:
    writes = [row(3, values={"loss": float(n)}, sequence=n) for n in range(30)]
    for write in [*writes, *writes[::-1], *writes[::3]]:
        await spool.deliver(write)
    ((metrics, history),) = ask(postgres_dsn, "select metrics, history from lens_row")
    assert metrics == {"loss": 29.0}
    assert [entry["sequence"] for entry in history] == list(range(13, 29))


WRITE = st.tuples(
    st.integers(0, 2),
    st.integers(0, 4),
    st.dictionaries(st.sampled_from(["loss", "lr"]), st.floats(-9, 9) | st.just(float("nan")), max_size=2),
    st.sampled_from([None, 0, 1, 2]),
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WRITE, min_size=1, max_size=12), st.sampled_from(["wandb", "log"]), st.randoms(use_true_random=False))
async def test_the_database_says_the_same_whatever_comes_in_which_order(
    store: Any, postgres_dsn: str, writes: list[tuple[Any, ...]], source: str, chance: random.Random
) -> None:
    tables = []
    for _ in range(2):
        run = f"run-{next(RUNS)}"
        rows = [
            row(step, values=values, sequence=sequence, run_id=run, data_source=source, origin=_ranked(rank))
            for step, sequence, values, rank in writes
        ]
        again = [*rows, *chance.choices(rows, k=3)]
        chance.shuffle(again)
        spool = Spool(store, run)
        while again:
            size = chance.randint(1, 4)
            await spool.deliver(*again[:size])
            again = again[size:]
        tables.append(
            ask(
                postgres_dsn,
                "select s.rank, r.row_step, r.sequence, r.rank, r.metrics::text, r.key_sequences::text,"
                " r.history::text, r.event_time_us from lens_row r join lens_stream s on s.id = r.stream_id"
                " where s.run_id = %s order by 1, 2",
                run,
            )
        )
        counted = ask(
            postgres_dsn,
            "select s.id, metric, points from lens_catalogue c join lens_stream s on s.id = c.stream_id"
            " where run_id = %s and points <> (select count(*) from lens_row r"
            " where r.stream_id = s.id and r.metrics ? c.metric)",
            run,
        )
        assert counted == []
    assert tables[0] == tables[1]


def _ranked(rank: int | None) -> Origin:
    return Origin(workload_uid="workload-1", rank=rank)


async def test_steps_that_go_backwards_in_a_new_session_are_the_next_attempt(spool: Spool, store: Any) -> None:
    await spool.deliver(*(row(step, session="first") for step in range(5)))
    await spool.deliver(*(row(step, session="second", values={"loss": 9.0}) for step in range(3, 6)))
    await spool.deliver(row(5, session="first"))
    found = await points(store)
    assert [(p.attempt, p.iteration) for p in found] == [(1, n) for n in range(6)] + [(2, n) for n in range(3, 6)]
    assert [p.iteration for p in await points(store, attempt=2)] == [3, 4, 5]
    detail = await store.workload("workload-1")
    assert [(r.attempt, r.rows, r.first_iteration, r.last_iteration) for r in detail.runs] == [
        (1, 6, 0, 5),
        (2, 3, 3, 5),
    ]


async def test_an_attempt_that_the_producer_gives_is_kept(spool: Spool, store: Any) -> None:
    await spool.deliver(row(0, attempt=7), row(0, session="later", values={"loss": 0.0}))
    assert [p.attempt for p in await points(store)] == [7, 8]


async def test_sessions_are_numbered_apart_for_each_run_and_rank(spool: Spool, store: Any) -> None:
    await spool.deliver(
        row(0, session="a", run_id="one"), row(0, session="b", run_id="two"), row(1, session="b", run_id="one")
    )
    assert [(p.run_id, p.attempt, p.iteration) for p in await points(store)] == [
        ("one", 1, 0),
        ("one", 2, 1),
        ("two", 1, 0),
    ]


def log_row(step: int, rank: int, values: dict[str, float]) -> StepMetrics:
    return row(step, origin=LOG_RANKS[rank], data_source="log", run_id="", values=values, sequence=10 - rank)


async def test_ranks_of_a_log_are_one_row_metric_by_metric_from_the_lowest(
    spool: Spool, store: Any, postgres_dsn: str
) -> None:
    await spool.deliver(log_row(1, 3, {"lm_loss": 3.0, "grad_norm": 3.0}))
    await spool.deliver(log_row(1, 0, {"lm_loss": 0.0}), log_row(1, 2, {"lm_loss": 2.0, "tflops": 2.0}))
    assert {p.metric_name: p.value for p in await points(store)} == {"lm_loss": 0.0, "grad_norm": 3.0, "tflops": 2.0}
    assert ask(postgres_dsn, "select count(*), max(s.rank) from lens_row r join lens_stream s on s.id = stream_id") == [
        (1, -1)
    ]


async def test_tags_stay_with_the_value_that_they_came_with(spool: Spool, postgres_dsn: str) -> None:
    await spool.deliver(row(0, values={"loss": 1.0, "lr": 1.0}, tags={"loss": {"a": "\x00"}, "lr": {}}, sequence=1))
    await spool.deliver(row(0, values={"lr": 2.0}, tags={"lr": {"b": "2"}}, sequence=2))
    assert ask(postgres_dsn, "select tags from lens_row") == [({"loss": {"a": "\ufffd"}, "lr": {"b": "2"}},)]
