"""The routes that answer points: parameters, formats, pages, what JSON cannot hold."""

from __future__ import annotations

import csv
import io
import math
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from starlette.requests import Request

from lens_core.http.parameters import time_ms
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row

DATA = "/workloads/workload-1/metrics/data"


async def fill(asked: QueryApp, count: int = 2000) -> None:
    """A run with two metrics."""
    rows = [row(step, values={"loss": 1000.0 if step == 777 else step / 7, "a,b": 1.0}) for step in range(count)]
    await asked.spool.deliver(*rows)


async def test_max_points_keeps_the_spike(asked: QueryApp) -> None:
    await fill(asked)
    found = await asked.data(metrics="loss", max_points=50)
    assert len(found) <= 50
    assert {"metric_name", "value", "timestamp", "iteration", "data_source", "run_id", "attempt"} == set(found[0])
    assert 777 in [point["iteration"] for point in found]
    assert (found[0]["iteration"], found[-1]["iteration"]) == (0, 1999)


async def test_aggregates_by_time(asked: QueryApp) -> None:
    await fill(asked, 120)
    found = await asked.data(metrics="loss", aggregate="max", interval="1m")
    assert [(p["timestamp"], p["iteration"]) for p in found] == [
        (1_699_999_980_000, 39),
        (1_700_000_040_000, 99),
        (1_700_000_100_000, 119),
    ]
    assert found[0]["value"] == pytest.approx(39 / 7)
    assert await asked.data(metrics="loss", aggregate="avg", interval="1m") == await asked.data(
        metrics="loss", aggregate="mean", interval="1m"
    )
    counts = await asked.data(metrics="loss", aggregate="count", interval="60000")
    assert [p["value"] for p in counts] == [40, 60, 20]


async def test_several_sources_at_once(asked: QueryApp) -> None:
    for source in ("wandb", "log", "tensorflow"):
        await asked.spool.deliver(*[replace(row(step, values={"loss": 1.0}), data_source=source) for step in range(3)])
    for text, expected in {
        "wandb,log": {"wandb", "log"},
        " log , tensorflow,nothing": {"log", "tensorflow"},
        "log": {"log"},
        "log,wandb,tensorflow": {"wandb", "log", "tensorflow"},
        ",": {"wandb", "tensorflow"},  # the log says the same
        "nothing,neither": set(),
    }.items():
        found = await asked.data(data_source=text)
        assert ({point["data_source"] for point in found}, len(found)) == (expected, 3 * len(expected)), text
        listed = await asked.json("/workloads/workload-1/metrics/available", data_source=text)
        assert {source for metric in listed["metrics"] for source in metric["data_source"]} == expected
        assert sum(metric["count"] for metric in listed["metrics"]) == len(found)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(timezone.utc)))
def test_a_time_in_iso_8601_is_that_in_milliseconds(moment: datetime) -> None:
    expected = (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
    east = moment.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
    texts = [moment.isoformat(), moment.replace(tzinfo=None).isoformat(), east, east.replace("+", " ")]
    for text in [*texts, f"{moment.replace(tzinfo=None).isoformat()}Z"]:
        query = urlencode({"start": text}).encode()
        assert time_ms(Request({"type": "http", "query_string": query}), "start") == expected, text


async def test_times_choose_points_in_either_way(asked: QueryApp) -> None:
    await fill(asked, 120)
    whole = await asked.data(metrics="loss")
    middle = whole[60]["timestamp"]
    text = datetime.fromtimestamp(middle / 1000, timezone.utc).isoformat()
    assert await asked.data(metrics="loss", start=text, end=text) == [whole[60]]
    assert await asked.data(metrics="loss", start=text) == await asked.data(metrics="loss", start=middle)


async def test_pages_by_cursor(asked: QueryApp) -> None:
    await fill(asked, 500)
    whole = await asked.data()
    paged: list[dict[str, Any]] = []
    cursor = ""
    for _ in range(20):
        answer = await asked.json(DATA, limit=150, cursor=cursor)
        assert len(answer["data"]) <= 150
        assert answer["total_count"] == len(whole)
        paged += answer["data"]
        cursor = answer.get("next_cursor", "")
        if not cursor:
            break
    assert paged == whole
    assert len(whole) == 1000


async def test_csv(asked: QueryApp) -> None:
    await asked.spool.deliver(row(0, values={'odd,"name"': math.nan}), row(1, values={'odd,"name"': 2.5}))
    response = await asked.get(DATA, format="csv")
    assert response.headers["content-type"].startswith("text/csv")
    lines = list(csv.DictReader(io.StringIO(response.text)))
    assert [(line["metric_name"], line["value"], line["iteration"]) for line in lines] == [
        ('odd,"name"', "NaN", "0"),
        ('odd,"name"', "2.5", "1"),
    ]
    page = await asked.get(DATA, format="csv", limit=1)
    assert len(list(csv.DictReader(io.StringIO(page.text)))) == 1
    rest = await asked.get(DATA, format="csv", limit=1, cursor=page.headers["x-next-cursor"])
    assert "2.5" in rest.text
    assert not rest.headers["x-next-cursor"]


async def test_special_values_are_null_and_named(asked: QueryApp) -> None:
    await asked.spool.deliver(row(0, values={"loss": math.nan}), row(1, values={"loss": -math.inf}))
    found = await asked.data()
    assert [(p["value"], p["special"]) for p in found] == [(None, "NaN"), (None, "-Infinity")]


async def test_an_unchanged_answer_is_304(asked: QueryApp) -> None:
    await fill(asked, 10)
    etag = (await asked.get(DATA)).headers["etag"]
    again = await asked.client.get(f"/api/v1{DATA}", headers={"If-None-Match": etag})
    assert again.status_code == 304
    await asked.spool.deliver(row(10))
    assert (await asked.client.get(f"/api/v1{DATA}", headers={"If-None-Match": etag})).status_code == 200
    for path in ("", "/events", "/metrics/sources", "/metrics/available", "/metrics/iteration-times"):
        url = f"/api/v1/workloads/workload-1{path}"
        etag = (await asked.client.get(url)).headers["etag"]
        assert (await asked.client.get(url, headers={"If-None-Match": etag})).status_code == 304


async def test_nobody_from_elsewhere_asks_without_a_token(asked: QueryApp) -> None:
    forwarded = {"X-Forwarded-For": "192.0.2.7"}
    paths = [("GET", f"/workloads/workload-1/{path}") for path in ("metrics/data", "metrics/rows", "stream", "events")]
    paths += [("POST", path) for path in ("/query", "/search", "/metrics", "/variable", "/annotations", "/exports")]
    paths += [("GET", "/workloads"), ("GET", "/exports"), ("GET", "/exports/x/file"), ("DELETE", "/exports/x")]
    for method, path in paths:
        response = await asked.client.request(method, f"/api/v1/{path.lstrip('/')}", headers=forwarded)
        assert response.status_code == 401, path


async def test_another_cluster_is_empty(asked: QueryApp) -> None:
    await fill(asked, 10)
    assert await asked.data(cluster="elsewhere") == []
    assert (await asked.json("/workloads", cluster="elsewhere"))["workloads"] == []
    assert await asked.json("/workloads/workload-1/metrics/rows", cluster="elsewhere") == []
    assert (await asked.get(DATA, cluster="elsewhere", format="csv")).text.count("\n") == 1
    stream = await asked.get("/workloads/workload-1/stream", cluster="elsewhere")
    assert (stream.status_code, stream.json()["message"]) == (404, "this daemon's cluster is 'default'")


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"max_points": "1"}, "max_points"),
        ({"max_points": "many"}, "max_points"),
        ({"aggregate": "mean"}, "interval"),
        ({"aggregate": "sideways", "interval": "1m"}, "aggregate"),
        ({"aggregate": "mean", "interval": "0"}, "interval"),
        ({"aggregate": "mean", "interval": "soon"}, "interval"),
        ({"aggregate": "mean", "interval": "1m", "max_points": "5"}, "max_points"),
        ({"format": "xml"}, "format"),
        ({"limit": "0"}, "limit"),
        ({"cursor": "%%%"}, "cursor"),
        ({"start": "yesterday"}, "start"),
    ],
)
async def test_wrong_parameters_are_named(asked: QueryApp, parameters: dict[str, str], says: str) -> None:
    response = await asked.get(DATA, **parameters)
    assert response.status_code == 400
    assert response.json()["code"] == "RequestParameterInvalid"
    assert says in response.json()["message"]
