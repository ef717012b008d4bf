"""Lost, refused and waiting records are said on a terminal, in the log and to a scraper, without a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from lens_core.cli import cli
from lens_core.cli.columns import pipeline_counts, sink_counts, source_counts
from tests.end_to_end.running_lens import RunningLens, http_get, http_post, wait_for
from tests.forked import forked_command

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
    page = http_get(f"{lens.url}/metrics").text
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

    wait_for(lost, 240, "a loss")
    seen: dict[int, int] = {}

    def settled() -> bool:
        """A batch in flight that the spool skips is counted with the next try."""
        far = lens.get("/status")["pipelines"][0]["sinks"][1]
        first = seen.setdefault(far["ledger"]["dropped"]["spool_full"], far["retries"])
        return bool(far["retries"] >= first + 2)

    wait_for(settled, 240, "the end of the loss")
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
    wait_for(lambda: 503 in send(lens, 3), 240, "a refusal")

    def ready() -> httpx.Response:
        return http_get(f"{lens.url}/readyz")

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
    for command in ("status", "top"):
        assert "takes nothing now: pipeline default: the spool is full" in lens_command(command, "--url", lens.url)
    assert "It stops at: sink default/store. Try: lens validate --connect" in lens_command("doctor", "--url", lens.url)
    assert "wandb_api is refusing records. reason=overloaded" in lens.log.read_text()
    (finding,) = [
        finding
        for finding in json.loads(lens_command("doctor", "--json", "--url", lens.url))
        if finding["step"] == "source wandb_api" and "overloaded" in finding["text"]
    ]
    assert "the spool is full because of a required sink" in finding["text"]
    assert "sinks below" in finding["remedy"]
    assert metric(lens, 'lens_records_rejected_total{component="wandb_api",reason="overloaded"}') == refused


def test_what_the_daemon_knows_is_shown_while_the_database_is_away(
    start: Callable[[str], RunningLens],
) -> None:
    lens = start("  store: {type: postgresql, dsn: 'postgresql://nobody@127.0.0.1:9/none'}\n")
    send(lens, 1, rows=3)
    for command in (["top", "--once"], ["status"]):
        text = lens_command(*command, "--url", lens.url)
        assert "store" in text
        assert "wandb_api" in text
    text = lens_command("top", "--once", "--url", lens.url)
    assert "The workloads cannot be shown: " in text
    assert "503" in text
    assert json.loads(lens_command("top", "--json", "--url", lens.url))["store_error"]


def test_replay_names_the_sinks_that_there_are(start: Callable[[str], RunningLens], tmp_path: Path) -> None:
    lens = start(f"  store: {{type: jsonl, path: {tmp_path / 'out.jsonl'}}}\n")
    answer = http_post(f"{lens.url}/api/v1/replay", params={"sink": "nosuch"})
    assert answer.status_code == 400
    assert answer.json()["message"] == "there is no sink 'nosuch'; there are: store"


def test_doctor_gives_no_false_alarm_where_only_records_come_in(tmp_path: Path) -> None:
    lens = RunningLens(
        tmp_path / "lens",
        f"sources: {{records_api: {{}}}}\nsinks: {{rows: {{type: jsonl, path: {tmp_path / 'out.jsonl'}}}}}\n",
    ).start()
    try:
        done = CliRunner().invoke(cli, ["doctor", "--send", "--json", "--url", lens.url])
    finally:
        lens.end()
    states = {finding["step"]: finding["state"] for finding in json.loads(done.output)}
    assert "failed" not in states.values()
    assert (states["sending"], states["probe"], states["identity"]) == ("skipped", "skipped", "ok")
    assert done.exit_code == 0


def test_a_configuration_or_a_data_directory_names_the_daemon(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    file = folder / "lens.yaml"
    file.write_text(
        f"data_dir: ${{SOME_DIR:-data}}\nsinks: {{rows: {{type: jsonl, path: {tmp_path / 'out.jsonl'}}}}}\n"
    )
    for arguments in (["status"], ["run", "--", "true"]):
        done = CliRunner().invoke(cli, [arguments[0], "--config", str(file), *arguments[1:]])
        assert done.exit_code == 1
        assert f"no daemon runs on {folder / 'data'}" in str(done.exception)
    lens = RunningLens(folder / "data", None)
    lens.start()
    try:
        for named in (["--config", str(file)], ["--data-dir", str(folder / "data")]):
            assert lens.url in lens_command("status", *named)
        ran = subprocess.run(
            [*forked_command(), "run", "-c", str(file), "--", "env"],
            env={**os.environ, "PRIMUS_LENS_API_BASE_URL": "http://other.invalid/api/v1"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert f"PRIMUS_LENS_API_BASE_URL={lens.url}/api/v1" in ran.stdout.splitlines()
    finally:
        lens.end()
