"""One workload in the terminal, by any name that `top` prints, and the documented commands as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.cli.curve import HEIGHT, draw_curve
from lens_core.cli.wording import plain
from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.forked import forked_command, run_lens

LONG = "a-name-that-is-longer-than-the-column-of-top-has-room-for"


def rows(name: str, count: int, ago: float = 0.0, **origin: Any) -> list[dict[str, Any]]:
    now = time.time() - ago
    return [
        {
            "record": "step_metrics",
            "origin": {"workload_uid": name, **origin},
            "data_source": "wandb",
            "run_id": "r",
            "row_step": step,
            "values": {"loss": 4.0 / (step + 1), "grad_norm": "NaN" if step == 7 else 1.0},
            "event_time": now - count + step,
        }
        for step in range(count)
    ]


def send(lens: RunningLens, *records: dict[str, Any]) -> None:
    answer = lens.post("/records", {"version": 1, "producer": "test", "records": list(records)})
    assert answer.json()["rejected"] == [], answer.text


@pytest.fixture(scope="module")
def lens(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[RunningLens]:
    """A daemon with a job that failed, one that trains, two of one name, one with a long name."""
    daemon = RunningLens(tmp_path_factory.mktemp("show") / "lens").start()
    send(daemon, *rows("job-1", 40, ago=100), *rows("fine", 30), *rows(LONG, 5))
    failure = {
        "record": "event",
        "origin": {"workload_uid": "job-1", "rank": 11, "node": "gpu-node-18"},
        "type": "out_of_memory",
        "event_time": time.time() - 99,
        "details": {"line": "torch.OutOfMemoryError: CUDA out of memory"},
    }
    saved = {**failure, "type": "checkpoint_saved", "iteration": 30, "event_time": time.time() - 108, "details": {}}
    lines = ["loading with HF_TOKEN=hf-abcdefgh", "Traceback (most recent call last):", "OOM at layer 7"]
    of_line = {"record": "log_line", "origin": failure["origin"]}
    send(daemon, failure, saved, *({**of_line, "text": text} for text in lines))
    daemon.drained()
    yield daemon
    daemon.end()


def lens_command(lens: RunningLens, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_lens(*arguments, environ={**os.environ, "LENS_URL": lens.url, "COLUMNS": "100", **environment})


def with_lens(lens: RunningLens, folder: Path) -> dict[str, str]:
    """The variables of a shell that has `lens` on its path."""
    command = folder / "lens"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(forked_command())} "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "LENS_URL": lens.url, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_show_has_verdict_curves_and_events(lens: RunningLens) -> None:
    shown = lens_command(lens, "show", "job-1")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0] == "job-1  failed"
    summary = "Out of device memory on rank 11, gpu-node-18; loss 0.1; checkpoint 30; 9 steps lost"
    assert summary in lines
    assert "•" in shown.stdout
    assert any("!" in line for line in lines)  # the NaN of the gradients
    assert any("out of memory" in line and "rank 11" in line and "gpu-node-18" in line for line in lines)
    place = lines.index("last log lines of rank 11, gpu-node-18")
    assert lines[place + 1 : place + 4] == [
        "  loading with HF_TOKEN=***",
        "  Traceback (most recent call last):",
        "  OOM at layer 7",
    ]
    found = json.loads(lens_command(lens, "show", "job-1", "--json", "--metric", "loss", "--events", "1").stdout)
    assert found["verdict"]["summary"] == summary
    assert ([*found["curves"]], len(found["events"])) == (["loss"], 1)
    missing = lens_command(lens, "show", "job-1", "--metric", "nothing")
    assert (missing.returncode, "has no metric 'nothing'; it has: grad_norm, loss" in missing.stderr) == (1, True)


def test_without_other_letters_everything_is_ascii(lens: RunningLens) -> None:
    for arguments in (["show", "job-1"], ["top", "--once"]):
        shown = lens_command(lens, *arguments, LC_ALL="C", PYTHONUTF8="1")
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.isascii(), shown.stdout
    assert re.search(r"[_.\-=+*#@]{8}", shown.stdout)


def test_every_name_that_top_prints_is_taken(lens: RunningLens) -> None:
    printed = lens_command(lens, "top", "--once").stdout
    [cut] = re.findall(r"a-name-\S*…", printed)
    for name in ("job-1", cut, LONG):
        for command in (["show", name], ["diagnose", "--workload", name], ["diagnose", "--json", "--workload", name]):
            done = lens_command(lens, *command)
            assert done.returncode == 0, done.stderr
    assert "Out of device memory on rank 11" in lens_command(lens, "diagnose", "--workload", "job-1").stdout
    for command in (["show", "jobb"], ["diagnose", "--workload", "jobb"], ["goodput", "jobb"], ["show", " "]):
        done = lens_command(lens, *command)
        assert done.returncode == 1
        assert "no workload is called 'jobb'" in done.stderr or "is empty" in done.stderr
    assert "near: job-1" in lens_command(lens, "show", "job").stderr


def test_top_is_filtered_and_sorted_and_says_why(lens: RunningLens) -> None:
    failed = lens_command(lens, "top", "--state", "failed", COLUMNS="160").stdout
    assert "Out of device memory on rank 11, gpu-node-18" in failed
    assert "fine" not in failed
    sorted_ = json.loads(lens_command(lens, "top", "--json", "--sort", "loss", "--reverse").stdout)["workloads"]
    assert [line["workload_uid"] for line in sorted_] == [LONG, "fine", "job-1"]
    wrong = lens_command(lens, "top", "--state", "broken")
    assert (wrong.returncode, "'broken' is none of failed, hung" in wrong.stderr) == (2, True)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_documented_lines_with_jq_print_what_they_promise(lens: RunningLens, tmp_path: Path) -> None:
    documented = Path("docs/terminal.md").read_text() + Path("docs/commands.md").read_text()
    lines = set(
        re.findall(r"^\s*(?:\$ )?(lens (?:tap|top|status|show|doctor) .*--json \| jq .*)$", documented, re.MULTILINE)
    )
    assert len(lines) >= 5
    environment = with_lens(lens, tmp_path)
    for line in sorted(lines):
        if "lens tap" in line:
            continue
        command = line.replace("lens show my-job", "lens show job-1")
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "null" not in done.stdout.splitlines(), command
    for number, line in enumerate(sorted(one for one in lines if "lens tap" in one)):
        assert tapped(lens, line, number, environment), line


def tapped(lens: RunningLens, line: str, number: int, environment: dict[str, str]) -> list[str]:
    """Return what a documented line prints of three rows, with events and log lines between them."""
    command = line.replace("lens tap", "lens tap --count 3")
    name = f"llama-{number}"
    with subprocess.Popen(["bash", "-c", command], env=environment, stdout=subprocess.PIPE, text=True) as process:
        steps = iter(range(10_000))

        def feed() -> bool:
            event = {"record": "event", "origin": {"workload_uid": name}, "type": "evaluation"}
            step = next(steps)
            record = {**rows(name, 1)[0], "row_step": step, "values": {"loss": 1.0 + step}}
            send(lens, {**event, "event_time": time.time()}, record)
            return process.poll() is not None

        wait_for(feed, 240, "three records")
        assert process.stdout is not None
        printed = process.stdout.read().splitlines()
    assert len(printed) == 3
    assert not any("null" in text for text in printed), printed
    return printed


POINTS = st.lists(
    st.tuples(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.none()), st.integers(1, 9), st.booleans()),
    max_size=300,
)


@given(POINTS, st.integers(10, 200))
def test_a_curve_fits_and_hides_nothing_that_is_no_number(
    points: list[tuple[float | None, int, bool]], width: int
) -> None:
    buckets = [
        {
            "value": value,
            "min": value,
            "max": None if value is None else max(value, min(1e308, value + abs(value) * (count - 1))),
            "last": "NaN" if value is None else value,
            "count": count,
            "not_finite": count if value is None else int(is_broken and count > 1),
            "iteration": place,
        }
        for place, (value, count, is_broken) in enumerate(points)
    ]
    drawn = draw_curve("loss", buckets, width)
    assert all(len(line) <= max(width, 36) for line in drawn[1:])
    assert any("!" in line for line in drawn[1:]) == any(bucket["not_finite"] for bucket in buckets)
    finite = [bucket for bucket in buckets if bucket["value"] is not None]
    assert sum("│" in line for line in drawn) == (HEIGHT if finite else 0)


def test_a_curve_shows_spikes_and_says_where_a_constant_is() -> None:
    def buckets(*values: tuple[float, float, float]) -> list[dict[str, Any]]:
        names = ("min", "value", "max")
        one = {"count": 9, "not_finite": 0, "last": 1.0}
        return [{**one, **dict(zip(names, row, strict=True)), "iteration": place} for place, row in enumerate(values)]

    spiky = draw_curve("loss", buckets((1.0, 1.0, 1.0), (1.0, 1.2, 5.5), (1.0, 1.0, 1.0)), 80)
    assert spiky[1] == "       5.5│ ·"
    assert spiky[HEIGHT] == "         1│•••"
    constant = draw_curve("lr", buckets(*[(1e-4,) * 3] * 5), 80)
    (line,) = [line for line in constant if "•" in line]
    assert line == "    0.0001│•••••"


@given(st.text(), st.integers(5, 80))
def test_a_text_is_cut_between_words(text: str, longest: int) -> None:
    shown = plain(text, longest)
    assert len(shown) <= longest
    assert shown.isprintable() or not shown
    assert (shown == "".join(letter if letter.isprintable() else " " for letter in text)) == (len(text) <= longest)


def test_words_are_not_broken() -> None:
    assert plain("Out of device memory on rank 11", 20) == "Out of device…"
    assert plain("a-name-without-any-space-in-it", 10) == "a-name-wi…"
    assert plain(click.unstyle("whole words here"), 30) == "whole words here"
