"""`lens validate` and `lens graph`."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from lens_core.cli import main

GOOD = """
sources: {wandb_api: {}, records_api: {}}
sinks:
  rows: {type: jsonl, path: FOLDER/rows.jsonl}
  events: {type: jsonl, path: FOLDER/events.jsonl, required: false}
pipelines:
  training: {from: [wandb_api, records_api], to: [rows]}
  watch: {from: [wandb_api], to: [rows, events], filter: {kinds: [event]}}
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(caught.value.code or 0), out, err


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "lens.yaml"
    file.write_text(GOOD.replace("FOLDER", str(tmp_path)))
    return file


def test_a_valid_file(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "validate", str(good))
    assert (code, err) == (0, "")
    assert out.startswith(f"{good}: valid (2 sources, 2 sinks, ")
    assert out.endswith("2 pipelines)\n")


def test_problems_are_lines_and_the_code_is_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lens.yaml"
    file.write_text("sinks:\n  a: {type: jsnl}\nserver: {listn: x}\n")
    code, out, _ = run(capsys, "validate", str(file))
    assert code == 78
    assert out.splitlines() == [
        f"{file}:2:13: sinks.a: there is no sink plugin 'jsnl'; did you mean jsonl?",
        f"{file}:3:10: server: unknown key listn; did you mean listen?",
        "2 to fix",
    ]


def test_json_has_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lens.yaml"
    file.write_text("sinks: {a: {type: jsonl, path: x}}\nserver: {listn: x}\n")
    code, out, _ = run(capsys, "validate", "--json", str(file))
    assert code == 78
    answer = json.loads(out)
    assert answer["valid"] is False
    assert [(found["line"], found["column"]) for found in answer["problems"]] == [(2, 10)]


def test_connect_tries_every_sink(tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound but not listening: a connection is refused
        text = good.read_text().replace(
            "pipelines:", f"  web: {{type: http, url: 'http://127.0.0.1:{port}/'}}\npipelines:"
        )
        good.write_text(text)
        code, out, _ = run(capsys, "validate", "--connect", "--json", str(good), "--data-dir", str(tmp_path / "data"))
    assert code == 1
    sinks = {sink["name"]: sink for sink in json.loads(out)["sinks"]}
    assert sinks["rows"]["reachable"] is True
    assert sinks["web"]["reachable"] is False
    assert sinks["web"]["error"]


def test_connect_calls_every_check_and_says_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lens.yaml"
    file.write_text(
        f"sinks: {{rows: {{type: jsonl, path: {tmp_path}/out}}, chat: {{type: webhook, url: 'http://127.0.0.1:9/x'}}}}\n"
        f"sources: {{records_api: {{}}}}\ncollectors: {{pods: {{type: directory_file, path: {tmp_path}/none.json}}}}\n"
    )
    code, out, _ = run(capsys, "validate", "--config", str(file), "--connect", "--data-dir", str(tmp_path / "data"))
    assert code == 1
    assert "  sink rows (jsonl): reachable\n" in out
    assert "  sink chat (webhook): not checked\n" in out
    assert "  source records_api (records_api): not checked\n" in out
    assert "  collector pods (directory_file): not reachable: " in out
    code, out, _ = run(capsys, "validate", "-c", str(file), "--connect", "--json", "--data-dir", str(tmp_path / "data"))
    assert {found["name"]: found["reachable"] for found in json.loads(out)["components"]} == {
        "rows": True,
        "chat": None,
        "records_api": None,
        "pods": False,
    }


def test_one_file_is_named(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "validate")[0] == 2
    assert run(capsys, "validate", str(good), "--config", str(good))[0] == 2


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "validate", str(tmp_path / "gone.yaml"))
    assert code == 78
    assert "cannot be read: No such file or directory; check the path and its permissions" in out


def test_the_graph_draws_every_road(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "graph", str(good))
    assert code == 0
    assert out.splitlines()[:5] == [
        "wandb_api   ─┬─▶ [ training: disk spool ] ───▶ rows (jsonl)",
        "records_api ─┘",
        "",
        "wandb_api ───▶ [ watch: disk spool, only event ] ─┬─▶ rows (jsonl)",
        "                                                  └─▶ events (jsonl) (optional)",
    ]


def test_the_graph_of_a_broken_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lens.yaml"
    file.write_text("sinsk: {}")
    code, _, err = run(capsys, "graph", str(file))
    assert code == 78
    assert "1:1: unknown section sinsk; did you mean sinks?" in err
