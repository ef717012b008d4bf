"""From a client's request to a chart: points arrive in a stream, in every format, and in an export that is fetched."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openpyxl  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tests.end_to_end.running_lens import RunningLens, metrics_body, wait_for


@pytest.fixture(scope="module")
def lens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLens]:
    """A daemon on its embedded PostgreSQL, with a run of 5,000 steps."""
    daemon = RunningLens(tmp_path_factory.mktemp("queries") / "data").start()
    try:
        daemon.post("/wandb/metrics", metrics_body("w", range(5000), names=2)).raise_for_status()
        daemon.drained()
        yield daemon
    finally:
        daemon.end()


def test_what_is_sent_comes_out_of_the_stream_by_itself(lens: RunningLens) -> None:
    came: dict[int, float] = {}
    ready = threading.Event()

    def listen() -> None:
        url = f"{lens.url}/api/v1/workloads/live/stream?metrics=m0"
        with httpx.stream("GET", url, timeout=240) as response:
            for line in response.iter_lines():
                ready.set()
                if line.startswith('data: {"points"'):
                    for point in json.loads(line.removeprefix("data: "))["points"]:
                        came[point["iteration"]] = time.monotonic()
                if 5 in came:
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    assert ready.wait(240)
    sent = {}
    for step in range(1, 6):
        sent[step] = time.monotonic()
        lens.post("/wandb/metrics", metrics_body("live", [step], names=2)).raise_for_status()
        wait_for(lambda step=step: step in came, what=f"step {step}")  # type: ignore[misc]
    listener.join(240)
    waited = sorted(came[step] - sent[step] for step in sent)
    assert waited[2] < 8.0, waited  # a second, on a machine that does nothing else


def test_formats_say_the_same(lens: RunningLens) -> None:
    url = f"{lens.url}/api/v1/workloads/w/metrics/data"
    points = httpx.get(url, params={"metrics": "m1"}, timeout=240).json()["data"]
    table = pa.ipc.open_stream(
        httpx.get(url, params={"metrics": "m1", "format": "arrow"}, timeout=240).content
    ).read_all()
    text = httpx.get(url, params={"metrics": "m1", "format": "csv"}, timeout=240).text.splitlines()
    assert len(points) == table.num_rows == len(text) - 1 == 5000
    assert table.column("value").to_pylist() == [point["value"] for point in points]
    assert text[1].split(",")[1] == repr(points[0]["value"])


def test_an_export_is_fetched_as_a_workbook(lens: RunningLens) -> None:
    made = lens.post("/exports", {"workload_uid": "w", "metrics": "m0", "format": "xlsx", "max_points": 100})
    assert made.status_code == 202

    def done() -> Any:
        found = httpx.get(lens.url + made.headers["location"], timeout=240).json()
        assert found["state"] != "failed", found
        return found if found["state"] == "done" else None

    state = wait_for(done, what="the export")
    book = openpyxl.load_workbook(io.BytesIO(httpx.get(lens.url + state["file"], timeout=240).content))
    assert book.worksheets[0].max_row == state["points"] + 1
    assert (lens.data_dir / "exports" / f"{state['id']}.xlsx").exists()


def test_a_restart_keeps_exports_and_charts(lens: RunningLens, tmp_path: Path) -> None:
    before = lens.points("w", metrics="m0", max_points=200)
    exports = lens.get("/exports")["exports"]
    lens.stop()
    lens.start()
    assert lens.points("w", metrics="m0", max_points=200) == before
    assert lens.get("/exports")["exports"] == exports
