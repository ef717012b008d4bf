"""metrics/data with buckets, a moving average and ranks, over a real store."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import ORIGIN, row

DATA = "/workloads/workload-1/metrics/data"


def average(values: list[float], weight: float) -> list[float]:
    """The moving average after each value."""
    mean, shown = 0.0, []
    for steps, value in enumerate(values, 1):
        mean = weight * mean + (1 - weight) * value
        shown.append(mean / (1 - weight**steps))
    return shown


async def test_buckets_are_made_of_all_points(asked: QueryApp) -> None:
    values = [1000.0 if step % 333 == 5 else 2 + math.sin(step / 50) for step in range(3000)]
    await asked.spool.deliver(*[row(step, values={"loss": value}) for step, value in enumerate(values)])
    answer = await asked.json(DATA, metrics="loss", buckets=40, smooth=0.9)
    found = answer["data"]
    assert len(found) <= 40
    assert sum(one["count"] for one in found) == 3000
    assert (found[0]["value"], found[-1]["last"]) == (values[0], values[-1])
    assert max(one["max"] for one in found) == 1000.0
    shown = average(values, 0.9)
    assert [one["smoothed"] for one in found] == pytest.approx([shown[one["iteration"]] for one in found])
    (series,) = answer["series"]
    assert [series["p2"], series["p98"]] == pytest.approx(np.percentile(values, [2, 98]).tolist())
    assert series["smoothing"]["steps"] == 3000
    # A part of the run is smoothed as the whole run is.
    part = (await asked.json(DATA, metrics="loss", buckets=40, smooth=0.9, start=found[-9]["timestamp"]))["data"]
    assert part[0]["iteration"] == found[-9]["iteration"]
    assert [one["smoothed"] for one in part] == pytest.approx([shown[one["iteration"]] for one in part])
    rows = list(csv.DictReader(io.StringIO((await asked.get(DATA, metrics="loss", buckets=9, format="csv")).text)))
    assert sum(int(one["count"]) for one in rows) == 3000


async def test_values_that_are_no_numbers_are_counted_and_named(asked: QueryApp) -> None:
    values = [1.0, math.nan, math.inf, 4.0, math.nan]
    await asked.spool.deliver(*[row(step, values={"loss": value}) for step, value in enumerate(values)])
    answer = await asked.json(DATA, metrics="loss", buckets=100, smooth=0.5)
    found = answer["data"]
    assert [one["value"] for one in found] == [1.0, None, None, 4.0, None]
    assert [one["last"] for one in found] == [1.0, "NaN", "Infinity", 4.0, "NaN"]
    assert [one["special"] for one in found if one["value"] is None] == ["NaN", "Infinity", "NaN"]
    assert [one["smoothed"] for one in found] == [1.0, None, None, 3.0, None]  # (0.25 + 2) / 0.75
    assert answer["series"][0]["not_finite"] == 3


def points_of(curve: dict[str, Any]) -> list[dict[str, Any]]:
    """Each point of a curve in columns as an object."""
    columns = {name: column for name, column in curve.items() if isinstance(column, list)}
    same = {name: value for name, value in curve.items() if name not in columns}
    return [{**same, **dict(zip(columns, row, strict=True))} for row in zip(*columns.values(), strict=True)]


async def test_columns_are_the_points_of_objects(asked: QueryApp) -> None:
    values = [1.5, math.nan, -math.inf, 4.0]
    runs = {"one": values, "two": values[:1]}
    for run, logged in runs.items():
        rows = [row(step, run_id=run, values={"loss": value, "lr": 0.1}) for step, value in enumerate(logged)]
        await asked.spool.deliver(*rows)
    ways: list[dict[str, Any]] = [{}, {"limit": 3}, {"max_points": 3}, {"buckets": 9, "smooth": 0.5}, {"metrics": "no"}]
    ways += [{"buckets": 3, "group_by": "rank"}, {"fields": "rank,tags"}, {"metrics": "loss", "aggregate": "mean,p50"}]
    for way in ways:
        interval = {"interval": "2it"} if "aggregate" in way else {}
        objects, columns = [await asked.json(DATA, **way, **interval, format=name) for name in ("json", "columns")]
        found = [point for curve in columns.pop("curves") for point in points_of(curve)]
        for point in found:
            if point.get("special", "") is None:
                del point["special"]
        assert found == objects.pop("data"), way
        assert columns == objects


async def test_ranks_are_one_curve_or_one_each(asked: QueryApp) -> None:
    for rank in (0, 1, 11):
        origin = replace(ORIGIN, rank=rank)
        rows = [row(step, origin=origin, values={"loss": float(step + rank)}) for step in range(50)]
        await asked.spool.deliver(*rows)
    together = await asked.json(DATA, metrics="loss", buckets=500, smooth=0.5)
    assert together["series"][0]["smoothing"]["steps"] == 50  # ranks of one iteration are one step
    assert [(one["min"], one["max"]) for one in together["data"]] == [(step, step + 11) for step in range(50)]
    assert [one["value"] for one in together["data"]] == pytest.approx([step + 4 for step in range(50)])
    by_rank = await asked.json(DATA, metrics="loss", buckets=500, group_by="rank")
    assert {series["rank"]: series["count"] for series in by_rank["series"]} == {0: 50, 1: 50, 11: 50}
    assert {(one["rank"], one["value"] - one["iteration"]) for one in by_rank["data"]} == {(0, 0), (1, 1), (11, 11)}
    one = await asked.data(metrics="loss", rank=11)
    assert [point["value"] for point in one] == [float(step + 11) for step in range(50)]
    sums = await asked.data(metrics="loss", group_by="rank", aggregate="count", interval="1000it")
    assert [(point["rank"], point["value"]) for point in sums] == [(0, 50), (1, 50), (11, 50)]


async def test_sources_and_attempts_are_curves_of_their_own(asked: QueryApp) -> None:
    for source in ("wandb", "log"):
        for attempt in (1, 2):
            rows = [row(step, values={"loss": float(attempt)}, attempt=attempt) for step in range(30)]
            await asked.spool.deliver(*[replace(one, data_source=source) for one in rows])
    answer = await asked.json(DATA, metrics="loss", buckets=10, data_source="wandb,log")
    curves = [(one["data_source"], one["attempt"], one["count"], one["p98"]) for one in answer["series"]]
    assert sorted(curves) == [("log", 1, 30, 1.0), ("log", 2, 30, 2.0), ("wandb", 1, 30, 1.0), ("wandb", 2, 30, 2.0)]
    assert len(answer["data"]) <= 40


@pytest.mark.parametrize("more", [{"buckets": 10}, {"max_points": 10}, {}, {"group_by": "rank"}])
async def test_what_several_trackers_repeat_is_answered_once(asked: QueryApp, more: dict[str, Any]) -> None:
    for source in ("mlflow", "wandb", "tensorflow"):
        rows = [row(step, values={"loss": 1.0}, echo_of="transformers") for step in range(30)]
        await asked.spool.deliver(*[replace(one, data_source=source, run_id=source) for one in rows])
    answer = await asked.json(DATA, metrics="loss", **more)
    assert {point["data_source"] for point in answer["data"]} == {"wandb"}
    assert {one["data_source"] for one in answer.get("series", ())} <= {"wandb"}
    assert answer["echoes"] == [
        {"echo_of": "transformers", "data_source": "wandb", "left_out": ["mlflow", "tensorflow"]}
    ]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"buckets": 2}, "buckets must be between 3"),
        ({"smooth": 0.9}, "smooth needs buckets"),
        ({"buckets": 10, "smooth": 1}, "smooth must be a number from 0 to below 1"),
        ({"buckets": 10, "smooth": "nan"}, "smooth must be"),
        ({"buckets": 10, "max_points": 10}, "buckets does not go with max_points"),
        ({"buckets": 10, "limit": 10}, "buckets does not go with limit"),
        ({"buckets": 10, "order": "desc"}, "buckets does not go with order=desc"),
        ({"buckets": 10, "format": "arrow"}, "format arrow has no columns for min"),
        ({"group_by": "node"}, "group_by must be rank"),
        ({"group_by": "rank", "limit": 10}, "group_by=rank does not go with limit"),
        ({"rank": -2}, "rank must be between -1"),
    ],
)
async def test_what_does_not_go_together_is_refused(asked: QueryApp, parameters: dict[str, Any], words: str) -> None:
    response = await asked.get(DATA, **parameters)
    assert response.status_code == 400
    assert words in response.json()["message"]


async def test_one_file_has_the_points_of_several_workloads(asked: QueryApp) -> None:
    for uid in ("one", "two"):
        origin = replace(ORIGIN, workload_uid=uid, pod_name="", pod_uid="")
        await asked.spool.deliver(*[row(step, origin=origin, values={"loss": float(step)}) for step in range(7)])
    text = (await asked.get("/metrics/data", uid=["one", "two"], metrics="loss", format="csv")).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(one["workload_uid"], float(one["value"])) for one in rows] == [
        (uid, float(step)) for uid in ("one", "two") for step in range(7)
    ]
    refused = await asked.get("/metrics/data", uid=["one", "two"], limit=5)
    assert (refused.status_code, "limit goes with aggregate" in refused.text) == (400, True)
