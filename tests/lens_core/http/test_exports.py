"""Exports made in the background: 202, then the file, in every format; what is wrong, what is old, what is removed."""

from __future__ import annotations

import asyncio
import datetime
import io
import math
import time
from array import array
from pathlib import Path
from typing import Any

import openpyxl  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from lens_core import PointColumns
from lens_core.http import export_jobs, export_requests
from lens_core.http.export_jobs import ExportJobs
from lens_core.http.export_requests import ExportRequest, ExportRequests
from lens_core.http.point_xlsx import COLUMNS, workbook
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row


async def exported(asked: QueryApp, **wanted: Any) -> tuple[dict[str, Any], bytes]:
    """The state of an export when it is done, and its file."""
    response = await asked.client.post("/api/v1/exports", json={"workload_uid": "workload-1", **wanted})
    assert response.status_code == 202, response.text
    url = response.headers["location"]
    ends = time.monotonic() + 240
    while (state := (await asked.client.get(url)).json())["state"] in ("waiting", "running"):
        assert time.monotonic() < ends
        await asyncio.sleep(0.02)
    assert state["state"] == "done", state
    file = await asked.client.get(state["file"])
    assert file.status_code == 200
    assert len(file.content) == state["bytes"]
    return state, file.content


WANTED = b'{"workload_uid": "workload-1", "metrics": "loss"}'


async def fill(asked: QueryApp) -> None:
    """Three rows, one of them with values that are no numbers."""
    special = {"loss": math.nan, "<&>": -math.inf}
    await asked.spool.deliver(*(row(step, values=special if step == 2 else {"loss": step / 4}) for step in range(3)))


async def test_a_workbook(asked: QueryApp) -> None:
    await fill(asked)
    state, content = await exported(asked, format="xlsx")
    assert state["points"] == 4
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True)
    rows = list(book.worksheets[0].iter_rows(values_only=True))
    assert rows[0] == COLUMNS
    assert rows[1][:2] == ("<&>", "-Infinity")
    moment = datetime.datetime(2023, 11, 14, 22, 13, 21)
    assert rows[3] == ("loss", 0.25, moment, 1_700_000_001_000, 1, "wandb", "run-1", 1)
    assert rows[4][1] == "NaN"
    book.close()


async def test_csv_and_arrow_are_those_of_the_route(asked: QueryApp) -> None:
    await fill(asked)
    _, content = await exported(asked, format="csv", metrics="loss")
    same = await asked.get("/workloads/workload-1/metrics/data", format="csv", metrics="loss")
    assert content == same.content
    _, content = await exported(asked, format="arrow", metrics=["loss"], max_points=2)
    assert pa.ipc.open_stream(content).read_all().num_rows == 2


def test_a_long_workbook_goes_on_in_another_sheet(tmp_path: Path) -> None:
    piece = PointColumns(
        metric_name="m",
        data_source="s",
        run_id="r\x00",
        attempt=1,
        iterations=array("q", [*range(24), 2**60]),
        timestamps=array("q", [0] * 25),
        values=array("d", [1.5] * 25),
    )
    with workbook(tmp_path / "w.xlsx", sheet_rows=11) as book:
        book.write_piece(piece)
        book.write_piece(piece)
    read = openpyxl.load_workbook(tmp_path / "w.xlsx")
    assert [sheet.max_row for sheet in read.worksheets] == [11] * 5
    assert read.worksheets[2]["E6"].value == str(2**60)
    assert [sheet["A1"].value for sheet in read.worksheets] == ["metric_name"] * 5


async def test_exports_are_listed_and_removed(asked: QueryApp) -> None:
    await fill(asked)
    state, _ = await exported(asked)
    assert [export["id"] for export in (await asked.json("/exports"))["exports"]] == [state["id"]]
    assert (await asked.client.delete(state["url"])).status_code == 204
    assert (await asked.client.get(state["url"])).status_code == 404
    assert (await asked.json("/exports"))["exports"] == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "workload_uid"),
        ({"workload_uid": "w", "format": "pdf"}, "format"),
        ({"workload_uid": "w", "aggregate": "mean"}, "interval"),
        ({"workload_uid": "w", "nonsense": 1}, "nonsense"),
    ],
)
async def test_wrong_wishes_are_refused(asked: QueryApp, body: dict[str, Any], says: str) -> None:
    response = await asked.client.post("/api/v1/exports", json=body)
    assert response.status_code == 400
    assert says in response.json()["message"]


async def test_a_store_that_is_away_is_told(asked: QueryApp) -> None:
    await asked.store.stop()
    response = await asked.client.post("/api/v1/exports", json={"workload_uid": "w"})
    ends = time.monotonic() + 240
    while (state := (await asked.client.get(response.json()["url"])).json())["state"] != "failed":
        assert time.monotonic() < ends
        await asyncio.sleep(0.05)
    assert "not available" in state["error"]


async def test_another_process_knows_them_and_forgets_old_ones(
    asked: QueryApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await fill(asked)
    state, content = await exported(asked)
    again = ExportJobs(tmp_path / "exports")
    assert again.file(again.get_export(state["id"])).read_bytes() == content
    monkeypatch.setattr(export_jobs, "KEPT_SECONDS", -1.0)
    monkeypatch.setattr(export_requests, "KEPT_SECONDS", -1.0)
    assert again.all() == []
    assert ExportRequests(tmp_path / "exports").get_request(state["id"]) is None
    assert list((tmp_path / "exports").iterdir()) == []


async def test_an_export_that_a_process_had_not_finished_is_made_by_the_next(asked: QueryApp, tmp_path: Path) -> None:
    await fill(asked)
    request = ExportRequest(
        id="abc", workload_uid="workload-1", format="csv", created=int(time.time() * 1000), wanted=WANTED
    )
    ExportRequests(tmp_path / "exports").keep_request(request)
    ends = time.monotonic() + 240
    while (state := (await asked.client.get("/api/v1/exports/abc")).json())["state"] != "done":
        assert state["state"] in ("waiting", "running"), state
        assert time.monotonic() < ends
        await asyncio.sleep(0.02)
    assert (state["points"], state["created"]) == (3, request.created)


def test_requests_are_kept_within_bytes_the_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_requests, "MOST_REQUEST_BYTES", 3 * len(WANTED))
    requests = ExportRequests(tmp_path)
    now = int(time.time() * 1000)
    for number in range(5):
        requests.keep_request(
            ExportRequest(id=f"r{number}", workload_uid="w", format="csv", created=now + number, wanted=WANTED)
        )
    (tmp_path / "r3.request").write_bytes(b"{damaged")
    for known in (requests, ExportRequests(tmp_path)):
        assert known.get_request("r1") is None
        assert known.get_request("r4") is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r2.request", "r3.request", "r4.request"]
