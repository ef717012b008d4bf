"""Lost, refused and waiting records are said on a terminal, in the log and to a scraper, without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from lens_core.cli import cli
from lens_core.cli.counts import pipeline_counts, sink_counts, source_counts
from tests.end_to_end.running_lens import PLAIN, RunningLens, wait_for

CLOSED = "http://127.0.0.1:9/api/v1/records"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], RunningLens]]:
    running: list[RunningLens] = []

    def make(sinks: str) -> RunningLens:
        running.append(RunningLens(tmp_path / f"lens{len(running)}", f"spool: {{max_bytes: 65536}}\nsinks:\n{sinks}"))
        return running[-1].start()

    yield make
    for lens in running:
        lens.end()


def send(lens: RunningLens, bodies: int, rows: int = 1000) -> list[int]:
    """The statuses of so many requests, with rows that pack badly."""
    answers = []
    for body in range(bodies):
        logs = [
            {"step": body * rows + row, "timestamp": 1.7e9 + row, "data": {"loss": (row * 7919 % 10007) / 7}}
            for row in range(rows)
        ]
        answers.append(lens.post("/wandb/logs", {"workload_uid": "w", "run_id": "r", "logs": logs}).status_code)
    return answers


def lens_command(*arguments: str) -> str:
    return CliRunner().invoke(cli, list(arguments), env={"COLUMNS": "200"}).output


def metric(lens: RunningLens, text: str) -> float:
    page = httpx.get(f"{lens.url}/metrics", timeout=10, verify=PLAIN).text
    found = re.search(rf"^{re.escape(text)} (\S+)$", page, flags=re.M)
    assert found is not None, f"{text} is not exported"
    return float(found[1])


def adds_up(status: dict[str, Any]) -> None:
    for counts in (
        *map(source_counts, status["sources"]),
        *map(pipeline_counts, status["pipelines"]),
        *(sink_counts(sink) for pipeline in status["pipelines"] for sink in pipeline["sinks"]),
    ):
        went = ("out", "filtered", "refused", "dropped", "merged", "pending")
        assert counts["in"] + counts.get("derived", 0) == sum(counts.get(name, 0) for name in went), counts


def test_an_optional_sink_that_loses_records_is_seen_everywhere(
    start: Callable[[str], RunningLens], tmp_path: Path
) -> None:
    lens = start(
        f"  store: {{type: jsonl, path: {tmp_path / 'out.jsonl'}}}\n"
        f"  far: {{type: http, url: '{CLOSED}', required: false}}\n"
    )
    dropped = 'lens_records_dropped_total{component="default/far",reason="spool_full"}'
    assert metric(lens, dropped) == 0

    def lost() -> int:
        send(lens, 5)
        far = lens.get("/status")["pipelines"][0]["sinks"][1]
        return int(far["ledger"]["dropped"].get("spool_full", 0))

    wait_for(lost, 60, "a loss")
    status = lens.get("/status")
    adds_up(status)
    number = status["pipelines"][0]["sinks"][1]["ledger"]["dropped"]["spool_full"]
    assert metric(lens, dropped) == number
    for command in ("status", "top"):
        text = lens_command(command, "--url", lens.url)
        assert "dropped" in text
        assert "lost" in text
        assert f"{number:,}" in text
        assert re.search(r"(now|\d+ s ago): ConnectError", text), text
    findings = json.loads(lens_command("doctor", "--json", "--url", lens.url))
    said = [finding for finding in findings if finding["step"] == "sink default/far" and "lost" in finding["text"]]
    assert [finding["state"] for finding in said] == ["failed"]
    assert f"{number:,} spool_full" in said[0]["text"]
    assert lens.log.read_text().count("default/far is losing records. reason=spool_full") == 1
    assert lens.stop() == 0
    assert re.search(r"default/far lost [1-9]\d* records. reason=spool_full", lens.log.read_text())


def test_a_full_spool_of_a_required_sink_is_not_ready_until_there_is_room(
    start: Callable[[str], RunningLens],
) -> None:
    lens = start(f"  store: {{type: http, url: '{CLOSED}'}}\n")
    wait_for(lambda: 503 in send(lens, 3), 60, "a refusal")

    def ready() -> httpx.Response:
        return httpx.get(f"{lens.url}/readyz", timeout=10, verify=PLAIN)

    # Not only in the moment of the refusal.
    for _ in range(30):
        assert ready().status_code == 503, "a full spool is not ready"
    assert "pipeline default: the spool is full because of a required sink" in ready().text
    status = lens.get("/status")
    adds_up(status)
    refused = next(source for source in status["sources"] if source["name"] == "wandb_api")["rejected"]["overloaded"]
    text = lens_command("status", "--url", lens.url)
    assert "refused" in text
    assert f"{refused:,}" in text
    assert "wandb_api is refusing records. reason=overloaded" in lens.log.read_text()
    (finding,) = [
        finding
        for finding in json.loads(lens_command("doctor", "--json", "--url", lens.url))
        if finding["step"] == "source wandb_api" and "overloaded" in finding["text"]
    ]
    assert "sinks below" in finding["remedy"]
    assert metric(lens, 'lens_records_rejected_total{component="wandb_api",reason="overloaded"}') == refused
