"""A framework's rows that several trackers repeat: each once, unless a data source is asked for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.echoes import PREFERENCE, Member, choose

from lens_core import Origin, PointQuery
from tests.plugins.sinks.postgresql.support import ORIGIN, Spool, points, row, times


def rows_of_trainer(first: int, count: int, **changes: Any) -> list[Any]:
    """The rows that a Trainer gives to wandb, MLflow and TensorBoard, and those of its script."""
    found = []
    for step in range(first, first + count):
        at = {"event_time": 1_700_000_000.0 + step, **changes}
        echo = {"echo_of": "transformers", "iteration": step, **at}
        found += [
            row(step, values={"train/loss": 1.0, "train/global_step": step}, **echo),
            row(step, data_source="mlflow", run_id="m", values={"loss": 1.0}, **echo),
            row(step, data_source="tensorflow", run_id="out", values={"train/loss": 1.0}, **echo),
            row(10_000 + step, values={"own": 2.0}, **at),
            row(20_000 + step, data_source="mlflow", run_id="m", values={"other": 3.0}, **at),
        ]
    return found


async def test_each_row_once_by_default_and_every_source_on_request(store: Any, spool: Spool) -> None:
    await spool.deliver(*rows_of_trainer(0, 20))
    found = await points(store)
    assert {(point.data_source, point.metric_name) for point in found} == {
        ("wandb", "train/loss"),
        ("wandb", "train/global_step"),
        ("wandb", "own"),
        ("mlflow", "other"),  # it is nobody's echo
    }
    assert len(found) == 80
    assert len(await points(store, data_source="mlflow")) == 40
    assert len(await points(store, data_source="mlflow,tensorflow")) == 60
    assert len(await points(store, run_id="out")) == 20, "a run that is named is asked for"
    assert {m.name: m.data_source for m in await store.available_metrics("workload-1", "")} == {
        "train/loss": ["wandb"],
        "train/global_step": ["wandb"],
        "own": ["wandb"],
        "other": ["mlflow"],
    }
    assert [m.name for m in await store.available_metrics("workload-1", "tensorflow")] == ["train/loss"]
    assert {source.name for source in await store.metric_sources("workload-1")} == {"wandb", "mlflow", "tensorflow"}
    (choice,) = await store.source_choices(PointQuery(workload_uid="workload-1"))
    assert (choice.echo_of, choice.data_source, choice.left_out) == ("transformers", "wandb", ("mlflow", "tensorflow"))
    assert {point.data_source for point in await times(store)} == {"wandb", "mlflow"}


async def test_live_points_leave_out_the_same(store: Any, spool: Spool) -> None:
    await spool.deliver(*rows_of_trainer(0, 20))
    query = PointQuery(workload_uid="workload-1")
    begun = await store.news(query, "")
    await spool.deliver(*rows_of_trainer(20, 1))
    news = await store.news(query, begun.cursor)
    seen = {(columns.data_source, columns.metric_name) for columns in news.points}
    assert seen == {("wandb", "train/loss"), ("wandb", "train/global_step"), ("wandb", "own"), ("mlflow", "other")}


async def test_an_attempt_with_another_tracker_is_not_lost(store: Any, spool: Spool) -> None:
    early: dict[str, Any] = {"echo_of": "transformers", "attempt": 1}
    await spool.deliver(*(row(step, data_source="mlflow", run_id="a", **early) for step in range(30)))
    late: dict[str, Any] = {"echo_of": "transformers", "attempt": 1, "event_time": 1_700_100_000.0}
    await spool.deliver(*(row(step, data_source="wandb", run_id="b", **late) for step in range(30)))
    assert {point.data_source for point in await points(store)} == {"mlflow", "wandb"}


async def test_ranks_without_a_tracker_are_answered_by_the_framework(store: Any, spool: Spool) -> None:
    for rank in range(3):
        origin = msgspec.structs.replace(ORIGIN, rank=rank)
        source, echo = ("wandb", "transformers") if rank == 0 else ("transformers", "")
        await spool.deliver(*(row(step, origin=origin, data_source=source, echo_of=echo) for step in range(10)))
        if rank == 1:  # which has MLflow, too
            rows = (row(step, origin=origin, data_source="mlflow", echo_of="transformers") for step in range(20, 30))
            await spool.deliver(*rows)
    found = Counter(point.data_source for point in await points(store))
    assert found == {"wandb": 10, "transformers": 20, "mlflow": 10}
    assert len(await points(store, data_source="transformers")) == 20
    assert len(await points(store, rank=2)) == 10
    alone = Origin(workload_uid="workload-2")
    for rank in range(3):
        origin = msgspec.structs.replace(alone, rank=rank)
        await spool.deliver(*(row(step, origin=origin, data_source="transformers") for step in range(10)))
    assert len(await points(store, workload_uid="workload-2")) == 30, "one row of each rank"


async def test_each_rank_has_the_best_of_its_own_trackers(store: Any, spool: Spool) -> None:
    for rank, sources in enumerate((("wandb", "mlflow"), ("mlflow", "tensorflow"), ("tensorflow",))):
        origin = msgspec.structs.replace(ORIGIN, rank=rank)
        for source in sources:
            rows = (row(step, origin=origin, data_source=source, echo_of="transformers") for step in range(10))
            await spool.deliver(*rows)
    assert Counter(point.data_source for point in await points(store)) == {"wandb": 10, "mlflow": 10, "tensorflow": 10}
    for rank, source in enumerate(("wandb", "mlflow", "tensorflow")):
        assert {point.data_source for point in await points(store, rank=rank)} == {source}
    choices = await store.source_choices(PointQuery(workload_uid="workload-1"))
    assert [(choice.data_source, choice.left_out) for choice in choices] == [
        ("mlflow", ("tensorflow",)),
        ("wandb", ("mlflow",)),
    ]


async def test_what_a_redelivery_or_an_export_says_again(store: Any, spool: Spool) -> None:
    rows = rows_of_trainer(0, 5)
    await spool.deliver(*rows)
    await Spool(store, "another").deliver(*rows)
    exported = [record async for piece in store.export_records("workload-1") for record in piece]
    marked = {(r.data_source, name) for r in exported if getattr(r, "echo_of", "") for name in r.values}
    assert marked == {
        ("wandb", "train/loss"), ("wandb", "train/global_step"), ("mlflow", "loss"), ("tensorflow", "train/loss")
    }  # fmt: skip
    assert len(await points(store)) == 20


MEMBERS = st.lists(
    st.builds(
        Member,
        id=st.integers(1, 10_000),
        subject_id=st.integers(1, 2),
        framework=st.sampled_from(["transformers", "keras", "tensorflow"]),
        data_source=st.sampled_from([*PREFERENCE, "transformers", "mine"]),
        run_id=st.sampled_from(["a", "b"]),
        attempt=st.integers(1, 2),
        rank=st.integers(-1, 2),
        first_us=st.integers(0, 100),
        last_us=st.integers(0, 200),
        rows=st.integers(1, 1000),
        metrics=st.frozensets(st.sampled_from(["loss", "lr"]), min_size=1),
        has_others=st.booleans(),
    ).map(lambda one: one._replace(last_us=max(one.first_us, one.last_us))),
    max_size=12,
    unique_by=lambda one: one.id,
)


@given(MEMBERS)
def test_something_is_always_left_of_what_is_chosen_among(members: list[Member]) -> None:
    hidden = choose(members)
    assert choose(members[::-1]) == hidden or {*choose(members[::-1]).choices} == {*hidden.choices}
    for choice in hidden.choices:
        of_it = [one for one in members if (one.framework, one.data_source) == (choice.echo_of, choice.data_source)]
        assert any(one.id not in hidden.streams for one in of_it), "the chosen source is answered with"
        assert choice.data_source not in choice.left_out
    for member in members:
        if member.id in hidden.streams or member.id in hidden.metrics:
            assert not member.is_own, "the framework's own rows are nobody's repetition"
            assert any(member.data_source in choice.left_out for choice in hidden.choices)
            left = [one for one in members if one.id not in hidden.streams and one.id not in hidden.metrics]
            alike = [one for one in left if (one.subject_id, one.framework) == (member.subject_id, member.framework)]
            assert member.rank < 0 or {member.rank, -1} & {one.rank for one in alike}, "its rank is answered"
