"""Runs as rows: configuration, last and best values, filters, order, groups and pages."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lens_core import Event, Evidence
from lens_core.http.run_table import Condition, RunRow
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import ORIGIN, row
from tests.plugins.sinks.postgresql.test_echoes import rows_of_trainer


async def fill(asked: QueryApp, count: int = 12) -> None:
    """A sweep of so many runs in one workload."""
    for number in range(count):
        run = f"run-{number:02}"
        values = [5.0 - number / 10, 1.0 + number, float("nan") if number == 3 else 2.0 + number]
        await asked.spool.deliver(
            *[
                row(step, run_id=run, values={"loss": value, "eval/accuracy": step + number})
                for step, value in enumerate(values)
            ],
            Evidence(
                origin=ORIGIN,
                source="wandb",
                run_id=run,
                facts={"wandb": {"config": {"lr": 10.0 ** -(number % 3), "model": {"width": 64 * number}}}},
                event_time=1_700_000_000.0,
            ),
        )


async def names(asked: QueryApp, **parameters: Any) -> list[str]:
    return [run["run_id"] for run in (await asked.json("/runs", uid="workload-1", **parameters))["runs"]]


async def test_a_row_has_all_that_a_run_is_compared_by(asked: QueryApp) -> None:
    await fill(asked)
    answer = await asked.json("/runs", uid="workload-1")
    assert (answer["total_count"], answer["next_cursor"]) == (12, None)
    first, fourth = answer["runs"][0], answer["runs"][3]
    assert first["config"] == {"lr": 1.0, "model.width": 0}
    assert (first["last"], first["best"]) == ({"loss": 2.0, "eval/accuracy": 2.0}, {"loss": 1.0, "eval/accuracy": 2.0})
    assert fourth["best"]["loss"] == 4.0
    assert (first["state"], first["last_iteration"], first["rows"], first["attempts"]) == ("silent", 2, 3, 1)
    assert (await asked.json("/runs", search="nothing-like-it"))["runs"] == []
    assert len((await asked.json("/runs"))["runs"]) == 12


async def test_each_of_many_runs_has_its_configuration(asked: QueryApp) -> None:
    numbers = range(130)
    await asked.spool.deliver(
        *[row(1, run_id=f"run-{number:03}") for number in numbers],
        *[
            Evidence(
                origin=ORIGIN,
                source="wandb",
                run_id=f"run-{number:03}",
                facts={"wandb": {"config": {"seed": number}}} if number % 2 else {"config": {"seed": number}},
                event_time=1.7e9 + number,
            )
            for number in numbers
        ],
    )
    runs = (await asked.json("/runs", uid="workload-1", limit=1000))["runs"]
    assert [run["config"] for run in runs] == [{"seed": number} for number in numbers]


async def test_a_stall_that_names_no_run_is_of_those_that_logged_until_then(asked: QueryApp) -> None:
    for run, begin in (("early", 0.0), ("left", 1000.0), ("right", 1000.5)):
        rows = [row(step, run_id=run, event_time=1.7e9 + begin + step) for step in range(5)]
        await asked.spool.deliver(*rows)
    await asked.spool.deliver(Event(origin=ORIGIN, type="stalled", event_time=1.7e9 + 1100, data_source="analyzer"))
    found = (await asked.json("/runs", uid="workload-1"))["runs"]
    assert {run["run_id"]: run["state"] for run in found} == {"early": "silent", "left": "stalled", "right": "stalled"}


async def test_a_training_that_several_trackers_tell_of_is_one_row(asked: QueryApp) -> None:
    ended = Event(origin=ORIGIN, type="training_ended", event_time=1.7e9 + 1e6, data_source="wandb", run_id="run-1")
    mlflow = Evidence(origin=ORIGIN, source="mlflow", run_id="m", facts={"config": {"lr": 0.1}}, event_time=1.7e9)
    await asked.spool.deliver(*rows_of_trainer(0, 20), ended, mlflow)
    (run,) = (await asked.json("/runs", uid="workload-1"))["runs"]
    assert (run["run_id"], run["state"], run["rows"], run["config"]) == ("run-1", "ended", 40, {"lr": 0.1})
    assert run["last"] == {"train/loss": 1.0, "train/global_step": 19.0, "own": 2.0, "other": 3.0}


async def test_ranks_without_a_tracker_are_no_runs_beside_that_of_the_tracker(asked: QueryApp) -> None:
    for number in range(2):  # the second goes on from a checkpoint: another run of wandb, the same name of the Trainer
        for step in range(10 * number, 10 * number + 3):
            for rank in range(4):
                at: dict[str, Any] = {
                    "origin": msgspec.structs.replace(ORIGIN, rank=rank),
                    "iteration": step,
                    "event_time": 1.7e9 + 1000 * number + step + rank / 100,
                    "attempt": number + 1,
                }
                told = row(step, run_id=f"wandb-{number}", values={"train/loss": 1.0}, echo_of="transformers", **at)
                own = row(step, run_id="out", data_source="transformers", values={"loss": 1.0}, **at)
                await asked.spool.deliver(own if rank else told)
    found = (await asked.json("/runs", uid="workload-1"))["runs"]
    assert [(run["run_id"], run["rows"]) for run in found] == [("wandb-0", 3), ("wandb-1", 3)]
    assert [run["last"] for run in found] == [{"train/loss": 1.0}] * 2
    for step in range(3):  # a training of its own, an hour before
        early: dict[str, Any] = {"event_time": 1.7e9 - 3600 + step, "session": "early"}
        await asked.spool.deliver(row(step, run_id="alone", data_source="transformers", values={"loss": 2.0}, **early))
    assert await names(asked) == ["alone", "wandb-0", "wandb-1"]


async def test_trainings_one_after_the_other_are_rows_of_their_own(asked: QueryApp) -> None:
    for number in range(3):
        at = 1.7e9 + 1000 * number
        for step in range(20):
            told: dict[str, Any] = {
                "echo_of": "transformers",
                "iteration": step,
                "event_time": at + step,
                "values": {"loss": 1.0},
            }
            await asked.spool.deliver(
                row(step, run_id=f"wandb-{number}", **told),
                row(step, data_source="mlflow", run_id=f"mlflow-{number}", **told),
            )
    assert await names(asked) == [f"wandb-{number}" for number in range(3)]


async def test_the_log_of_a_run_is_no_run_beside_it(asked: QueryApp) -> None:
    for step in range(20):
        at: dict[str, Any] = {"iteration": step, "event_time": 1.7e9 + step}
        await asked.spool.deliver(
            row(step, values={"loss": 2.0}, **at),
            row(step, data_source="log", run_id="", values={"loss": 2.0, "tokens": 7.0}, **at),
        )
    (run,) = (await asked.json("/runs", uid="workload-1"))["runs"]
    assert (run["run_id"], run["rows"], run["last"]) == ("run-1", 20, {"loss": 2.0, "tokens": 7.0})


async def test_filters_order_groups_and_pages(asked: QueryApp) -> None:
    await fill(asked)
    assert await names(asked, filter="best.loss<3") == ["run-00", "run-01"]
    assert await names(asked, filter=["config.lr=0.1", "best.loss>=4.2"]) == ["run-04", "run-07"]
    assert await names(asked, filter="run_id~-1") == ["run-10", "run-11"]
    assert await names(asked, filter="config.nothing=1") == []
    assert (await names(asked, sort="best.loss", order="desc"))[:2] == ["run-04", "run-05"]
    grouped = await asked.json("/runs", uid="workload-1", group="config.lr", sort="best.loss", order="desc")
    assert grouped["groups"] == [{"value": value, "count": 4} for value in (0.01, 0.1, 1.0)]
    assert [run["run_id"] for run in grouped["runs"]][:5] == ["run-05", "run-08", "run-11", "run-02", "run-04"]
    paged: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = await asked.json("/runs", uid="workload-1", sort="last_iteration", limit=5, cursor=cursor)
        paged += [run["run_id"] for run in answer["runs"]]
        cursor = answer["next_cursor"]
    assert paged == await names(asked, sort="last_iteration")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"filter": "loss"}, "filter must be like"),
        ({"filter": "loss<2"}, "filter must name a column"),
        ({"sort": "colour"}, "sort must name a column"),
        ({"group": "config."}, "group must name a column"),
        ({"cursor": "5"}, "cursor is none"),
    ],
)
async def test_what_nobody_knows_is_refused(asked: QueryApp, parameters: dict[str, str], words: str) -> None:
    response = await asked.get("/runs", **parameters)
    assert (response.status_code, words in response.json()["message"]) == (400, True), response.text


def test_a_value_that_is_missing_or_of_another_kind_fails_no_filter() -> None:
    found = RunRow(
        workload_uid="w",
        name="w",
        run_id="r",
        state="running",
        attempts=1,
        rows=1,
        last_iteration=None,
        first_seen=0,
        last_seen=0,
        config={"lr": "1e-3", "flag": True, "list": [1], "none": None},
        last={"loss": "NaN"},
        best={},
    )
    for text, expected in {
        "config.lr=0.001": True,
        "config.flag=true": True,
        "config.list~1": True,
        "config.none!=1": True,
        "config.none<1": False,
        "last.loss<1": False,
        "last.loss=nan": True,
        "last_iteration>0": False,
        "state!=failed": True,
    }.items():
        assert Condition.of_text(text).holds_of(found) == expected, text
