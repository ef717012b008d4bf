"""Rows that come by a second way, from logs, event files or servers: each once, unless a data source is asked for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.copies import Candidate, choose_copies, quantity_of
from lens_plugins.sinks.postgresql.echoes import NOTHING

from lens_core import Origin, PointQuery
from tests.plugins.sinks.postgresql.support import ORIGIN, Spool, points, row, times

RANK_0 = msgspec.structs.replace(ORIGIN, rank=0)
COUNT = 20


def trainer_rows(*sources: str, count: int = COUNT) -> list[Any]:
    """The rows that the hook has of a Trainer with these trackers."""
    names = {"mlflow": "loss", "transformers": "loss"}
    return [
        row(
            step,
            origin=RANK_0,
            data_source=source,
            run_id="work/runs/a" if source == "tensorflow" else source,
            session=f"hook-{source}",
            values={names.get(source, "train/loss"): 1.0},
            echo_of="" if source == "transformers" else "transformers",
        )
        for step in range(count)
        for source in sources
    ]


def log_rows(first: int = 0, count: int = COUNT, later: float = 0.0, **values: float) -> list[Any]:
    """The rows of the lines that the same Trainer printed."""
    return [
        row(
            step,
            data_source="log",
            run_id="",
            attempt=1,
            values={"lm_loss": 1.0, "epoch": step / 10, "current_iteration": step, **values},
            event_time=1_700_000_000.0 + step + later,
        )
        for step in range(first, first + count)
    ]


def collected_rows(source: str, run_id: str, *, name: str = "train/loss", count: int = COUNT) -> list[Any]:
    """The rows that a collector has read of a run."""
    return [
        row(step, data_source=source, run_id=run_id, session="file", values={name: 1.0}, echo_of=source)
        for step in range(count)
    ]


async def test_a_trainer_in_the_hook_the_log_and_event_files(store: Any, spool: Spool) -> None:
    await spool.deliver(*trainer_rows("wandb", "tensorflow"), *log_rows(mem_usage=2.0))
    await spool.deliver(*collected_rows("tensorflow", "runs/a"))
    found = Counter((point.data_source, point.metric_name) for point in await points(store))
    assert found == {("wandb", "train/loss"): COUNT, ("log", "mem_usage"): COUNT}, "nobody else has the memory"
    (choice,) = await store.source_choices(PointQuery(workload_uid="workload-1"))
    assert (choice.echo_of, choice.data_source) == ("transformers", "wandb")
    assert choice.left_out == ("log", "tensorflow")
    for source, count in {"log": 4 * COUNT, "wandb": COUNT, "tensorflow": COUNT}.items():
        assert len(await points(store, data_source=source)) == count
    assert len(await points(store, run_id="runs/a")) == COUNT, "a run that is named is asked for"
    listed = {info.name: info.data_source for info in await store.available_metrics("workload-1", "")}
    assert listed == {"train/loss": ["wandb"], "mem_usage": ["log"]}


@pytest.mark.parametrize("sources", [("wandb", "mlflow"), ("tensorflow",), ("mlflow",), ("transformers",)])
async def test_a_log_gives_way_to_what_the_job_says_itself(store: Any, spool: Spool, sources: tuple[str, ...]) -> None:
    await spool.deliver(*trainer_rows(*sources), *log_rows())
    assert Counter(point.data_source for point in await points(store)) == {sources[0]: COUNT}
    assert {point.data_source for point in await times(store)} == {sources[0]}
    news = await store.news(PointQuery(workload_uid="workload-1"), "")
    await spool.deliver(*(row for row in log_rows(COUNT, 1)))
    assert not (await store.news(PointQuery(workload_uid="workload-1"), news.cursor)).points


async def test_a_log_that_is_much_longer_is_answered_with(store: Any, spool: Spool) -> None:
    await spool.deliver(*trainer_rows("wandb", count=5), *log_rows(count=40))
    found = Counter((point.data_source, point.metric_name) for point in await points(store))
    assert found == {("log", name): 40 for name in ("lm_loss", "epoch", "current_iteration")}
    assert len(await points(store, data_source="wandb")) == 5


async def test_a_log_of_other_times_stays(store: Any, spool: Spool) -> None:
    await spool.deliver(*trainer_rows("wandb"), *log_rows(), *log_rows(100, later=90_000.0))
    assert {point.iteration for point in await points(store, data_source="log")} == {*range(20), *range(100, 120)}


async def test_a_log_that_is_read_after_the_job_is_the_jobs(store: Any, spool: Spool) -> None:
    await spool.deliver(*trainer_rows("wandb"))
    await spool.deliver(*log_rows(later=60.0))
    assert {point.data_source for point in await points(store)} == {"wandb"}


async def test_a_collected_run_alone_is_answered(store: Any, spool: Spool) -> None:
    await spool.deliver(*collected_rows("tensorflow", "a"), *collected_rows("tensorflow", "b", name="val"))
    assert Counter(point.run_id for point in await points(store)) == {"a": COUNT, "b": COUNT}
    assert not await store.source_choices(PointQuery(workload_uid="workload-1"))


@pytest.mark.parametrize(("source", "answered"), [("transformers", "tensorflow"), ("wandb", "wandb")])
async def test_a_collected_run_goes_before_a_framework_and_behind_a_tracker(
    store: Any, spool: Spool, source: str, answered: str
) -> None:
    await spool.deliver(*trainer_rows(source), *collected_rows("tensorflow", "x"))
    assert {point.data_source for point in await points(store)} == {answered}


async def test_a_metric_that_is_named_is_answered_by_whoever_has_it(store: Any, spool: Spool) -> None:
    await spool.deliver(*trainer_rows("wandb", "mlflow", "transformers"), *log_rows())
    asked = await points(store, metrics=("loss", "lm_loss", "train/loss"))
    found = Counter((point.data_source, point.metric_name) for point in asked)
    assert {source for source, name in found if name == "lm_loss"} == {"log"}
    assert {source for source, name in found if name == "train/loss"} == {"wandb"}


async def test_a_collected_run_that_is_longer_than_the_hooks(store: Any, spool: Spool) -> None:
    await spool.deliver(*collected_rows("mlflow", "m", name="loss", count=60))
    hooked = [row(step, origin=RANK_0, data_source="mlflow", run_id="m", session="hook") for step in range(50, 60)]
    await spool.deliver(*hooked)
    assert len(await points(store)) == 60
    assert len(await points(store, data_source="mlflow")) == 60
    assert len(await points(store, rank=0)) == 10, "a rank that is named is asked for"


async def test_what_two_trackers_were_told_by_hand_stays(store: Any, spool: Spool) -> None:
    own = [row(step, data_source=source, run_id="r") for step in range(COUNT) for source in ("wandb", "mlflow")]
    await spool.deliver(*own, *log_rows())
    assert Counter(point.data_source for point in await points(store)) == {"wandb": COUNT, "mlflow": COUNT}


async def test_the_loss_of_all_ranks_beside_a_log(store: Any, spool: Spool) -> None:
    for rank in range(4):
        origin = msgspec.structs.replace(ORIGIN, rank=rank)
        await spool.deliver(*(row(step, origin=origin) for step in range(COUNT)))
    await spool.deliver(*log_rows())
    assert Counter(point.data_source for point in await points(store)) == {"wandb": 4 * COUNT}


async def test_workloads_do_not_hide_each_others_rows(store: Any, spool: Spool) -> None:
    other = Origin(workload_uid="workload-2")
    lines = [msgspec.structs.replace(line, origin=other) for line in log_rows()]
    await spool.deliver(*trainer_rows("wandb"), *lines)
    found = Counter(point.data_source for point in await points(store, others=("workload-2",)))
    assert found == {"wandb": COUNT, "log": 3 * COUNT}


@pytest.mark.parametrize(
    ("names", "quantity"),
    [
        (("loss", "train/loss", "train_loss", "lm loss", "lm_loss", "training.loss", "Train/Loss"), "loss"),
        (("eval/loss", "eval_loss", "val_loss", "validation/lm_loss", "lm loss validation"), "eval_loss"),
        (("lr", "learning-rate", "train/learning_rate", "learning_rate"), "learning_rate"),
        (("grad-norm", "train/grad_norm", "grad_norm"), "grad_norm"),
        (("iteration-time", "elapsed_time_per_iteration_ms"), "elapsed_time_per_iteration_ms"),
        (("损失",), "损失"),
        (("loss/a", "train/loss_a"), "loss_a"),
    ],
)
def test_names_of_one_quantity(names: tuple[str, ...], quantity: str) -> None:
    assert {quantity_of(name) for name in names} == {quantity}


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        id=st.integers(1, 10_000),
        group=st.sampled_from(["w", "x"]),
        data_source=st.sampled_from(["wandb", "mlflow", "tensorflow", "transformers", "log", "otlp", "mine"]),
        echo_of=st.sampled_from(["", "transformers", "tensorflow", "mlflow"]),
        run_id=st.sampled_from(["", "a", "runs/a"]),
        rank=st.integers(-1, 1),
        first_us=st.integers(0, 50),
        last_us=st.integers(50, 100),
        last_iteration=st.integers(0, 100),
        rows=st.integers(1, 100),
        points=st.dictionaries(
            st.sampled_from(["loss", "train/loss", "lm_loss", "lr", "mem_usage"]), st.integers(1, 100), min_size=1
        ),
    ).map(lambda one: one._replace(echo_of="" if one.data_source in ("log", "otlp") else one.echo_of)),
    max_size=8,
    unique_by=lambda one: one.id,
)


@given(CANDIDATES)
def test_one_source_of_each_quantity_is_left(candidates: list[Candidate]) -> None:
    hidden = choose_copies(candidates, NOTHING)
    assert choose_copies(candidates[::-1], NOTHING) == hidden
    carriers: dict[tuple[str, str], list[Candidate]] = {}
    for one in candidates:
        for metric in one.points:
            carriers.setdefault((one.group, quantity_of(metric)), []).append(one)
    for (group, quantity), known in carriers.items():
        left = [
            one
            for one in known
            if any(quantity_of(name) == quantity and not hidden.holds(one.id, name) for name in one.points)
        ]
        assert left, (group, quantity)
        # All of them are at one time here.
        assert not any(one.is_outside for one in left) or len({one.data_source for one in left}) == 1
    for choice in hidden.choices:
        assert choice.data_source not in choice.left_out
