from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from lens_core.base.durations import duration
from lens_core.cli import cli
from lens_core.cli.keys import keys_in
from lens_core.cli.tap import line
from lens_core.cli.top_view import SORTS, TopView
from lens_core.cli.wording import ago, amount, bytes_text, column_means, plain, sparkline, wrap_line
from tests.durations import Stopwatch
from tests.end_to_end.running_lens import RunningLens, metrics_body, wait_for
from tests.forked import forked_command, run_lens


@pytest.fixture
def lens(tmp_path: Path, postgres_dsn: str) -> Iterator[RunningLens]:
    sinks = f'sinks:\n  store: {{type: postgresql, dsn: "{postgres_dsn}"}}\n'
    daemon = RunningLens(tmp_path / "lens", f"{sinks}server: {{shutdown_deadline_seconds: 60}}\n").start()
    yield daemon
    daemon.end()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    for name in ("LENS_URL", "LENS_TOKEN", "PRIMUS_LENS_API_BASE_URL", "PRIMUS_LENS_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, list(arguments))
        return done.exit_code, done.output

    return command


def test_top_prints_once_in_a_pipe(lens: RunningLens, run: Callable[..., tuple[int, str]]) -> None:
    body = {**metrics_body("llama[red]\x1b[31m", range(20)), "pod_name": ""}
    assert lens.post("/wandb/metrics", body).status_code == 200
    lens.drained()
    code, text = run("top", "--url", lens.url)
    assert code == 0
    assert "llama[red]" in text
    assert "\x1b[31m" not in text
    code, text = run("top", "--json", "--url", lens.url)
    assert json.loads(text)["workloads"][0]["last_iteration"] == 19


def test_doctor_says_that_all_is_well(lens: RunningLens, run: Callable[..., tuple[int, str]]) -> None:
    code, text = run("doctor", "--send", "--json", "--url", lens.url)
    findings = {finding["step"]: finding for finding in json.loads(text)}
    assert code == 0, text
    assert findings["probe"]["state"] == "ok"
    assert findings["store"]["state"] == "ok"
    assert findings["sink default/store"]["state"] == "ok"
    assert "lens-doctor" not in {line["workload_uid"] for line in lens.get("/workloads")["workloads"]}
    assert "lens-doctor" not in {line["workload_uid"] for line in lens.get("/overview")["workloads"]}
    assert [line["workload_uid"] for line in lens.get("/workloads", search="doctor")["workloads"]] == ["lens-doctor"]


def test_doctor_sends_where_the_hook_does(
    lens: RunningLens, run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, state in (("", "failed"), ("/", "failed"), ("/api/v1", "ok"), ("/api/v1/", "ok")):
        monkeypatch.setenv("PRIMUS_LENS_API_BASE_URL", f"{lens.url}{path}")
        code, text = run("doctor", "--json")
        (sending,) = [finding for finding in json.loads(text) if finding["step"] == "sending"]
        assert (path, code, sending["state"]) == (path, int(state == "failed"), state)
        if state == "failed":
            assert sending["remedy"] == f"export PRIMUS_LENS_API_BASE_URL={lens.url}/api/v1"
            assert "(404)" in sending["text"]
    monkeypatch.setenv("PRIMUS_LENS_API_BASE_URL", "http://127.0.0.1:1")
    assert run("doctor", "--json", "--url", lens.url)[0] == 0


def test_doctor_names_the_place_where_it_stops(run: Callable[..., tuple[int, str]]) -> None:
    code, text = run("doctor", "--url", "http://127.0.0.1:1")
    assert code == 1
    assert "It stops at: network. Try: lens up" in text


def test_doctor_finds_a_database_that_is_away(tmp_path: Path, run: Callable[..., tuple[int, str]]) -> None:
    config = 'sinks:\n  store: {type: postgresql, dsn: "postgresql://nobody@127.0.0.1:1/none"}\n'
    daemon = RunningLens(tmp_path / "lens", config).start()
    try:
        daemon.post("/wandb/metrics", metrics_body("w", range(3)))
        states = ("failing", "retrying")
        wait_for(lambda: daemon.get("/status")["pipelines"][0]["sinks"][0]["state"] in states, 240, "a failing sink")
        code, text = run("doctor", "--url", daemon.url)
    finally:
        daemon.kill()
    assert code == 1
    assert "✗ sink default/store" in text
    assert "lens validate --connect" in text


def test_tap_shows_records_as_they_pass(lens: RunningLens) -> None:
    command = [*forked_command(), "tap", "--json", "--workload", "w-*", "--kind", "step_metrics"]
    environment = {**os.environ, "LENS_URL": lens.url, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([*command, "--count", "2"], env=environment, stdout=subprocess.PIPE, text=True) as tap:
        deadline = time.monotonic() + 240
        step = 0
        while tap.poll() is None:
            assert time.monotonic() < deadline
            lens.post("/wandb/metrics", metrics_body("other", [step]))
            lens.post("/wandb/metrics", metrics_body("w-1", [step], names=1))
            step += 1
        assert tap.stdout is not None
        records = [json.loads(text) for text in tap.stdout]
    assert len(records) == 2
    assert {record["origin"]["workload_uid"] for record in records} == {"w-1"}
    assert records[0]["pipeline"] == "default"


def test_tap_ends_with_the_keyboard_and_refuses_unknown_pipelines(
    lens: RunningLens, run: Callable[..., tuple[int, str]]
) -> None:
    done = run_lens("tap", "--url", lens.url, "--pipeline", "nonsense")
    assert done.returncode == 1
    assert "there are: default" in done.stderr


def test_a_daemon_with_open_taps_stops_at_once(lens: RunningLens) -> None:
    command = [*forked_command(), "tap", "--url", lens.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tap:
        wait_for(lambda: "/tap" in _requests(lens), 240, "the tap")
        watch = Stopwatch()
        assert lens.stop() == 0
        assert watch.seconds() < 25  # and not the deadline of a minute
        tap.send_signal(signal.SIGINT)
        assert tap.wait(240) == 0


def _requests(lens: RunningLens) -> str:
    import httpx

    return httpx.get(f"{lens.url}/metrics", timeout=240).text


def test_a_line_of_tap_cannot_move_the_cursor() -> None:
    record = {
        "pipeline": "p",
        "record": "log_line",
        "origin": {"pod_name": "x"},
        "text": "\x1b[2Jgone\r\n",
        "event_time": 1,
    }
    assert "\x1b" not in line(record)
    assert "\n" not in line(record)


def test_wording() -> None:
    assert [amount(value) for value in (None, 0.5, 12345, 2.5e6)] == ["–", "0.5", "12.3 k", "2.5 M"]
    assert [duration(value) for value in (3, 75, 3700, 90000)] == ["3 s", "1 min 15 s", "1 h 1 min", "1 d 1 h"]
    assert [bytes_text(value) for value in (10, 2048)] == ["10 B", "2.0 KiB"]
    assert [ago(value) for value in (100, 9000, 120_000)] == ["now", "9 s ago", "2 min ago"]
    assert sparkline([0, 1, 2], 3) == "▁▅█"
    assert plain("a\x1bb" + "c" * 100, 10) == "a bcccccc…"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50), st.integers(1, 30))
@example([1e308, -1e308, 1.7e308], 3)
@example([5e-324, 5e-324], 1)
def test_bars_and_numbers_of_any_size_fit(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == min(width, len(values))
    assert all(min(values) <= mean <= max(values) for mean in column_means(values, width))
    assert all(len(amount(value)) <= 11 for value in values)


def on_a_terminal(command: list[str], columns: int, until: str, **environment: str) -> str:
    """Return the output of a command on a terminal of this width until it has printed a text; then press Ctrl-C."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    arguments = [*forked_command(), *command]
    with subprocess.Popen(
        arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=variables | environment
    ) as process:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + 240
        while until.encode() not in shown and select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
    os.close(ours)
    return shown.decode()


def test_top_at_eighty_columns_cuts_no_state(lens: RunningLens) -> None:
    name = "a-name-that-is-longer-than-a-narrow-terminal-has-room-for"
    assert lens.post("/wandb/metrics", {**metrics_body(name, range(20)), "pod_name": ""}).status_code == 200
    lens.drained()
    shown = on_a_terminal(["top", "--url", lens.url], 80, "a-name", TERM="xterm")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).splitlines()
    [line] = [line for line in lines if "a-name" in line]
    assert line.startswith(("running  ", "silent  "))
    assert len(line.rstrip()) <= 80


def test_keys_of_top_filter_search_and_quit(lens: RunningLens) -> None:
    lens.post("/wandb/metrics", {**metrics_body("job", range(20)), "pod_name": ""})
    lens.post("/wandb/metrics", {**metrics_body("another", range(20)), "pod_name": ""})
    lens.drained()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [*forked_command(), "top", "--url", lens.url, "--interval-seconds", "60"]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm"}
    ) as process:

        def screen_with(text: str) -> str:
            shown, deadline = "", time.monotonic() + 120
            while text not in shown and select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
                shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(ours, 65536).decode(errors="ignore"))
            assert text in shown, shown
            return shown

        screen_with("sort by need")
        os.write(ours, b"s\x1b[A")  # an arrow is no key of it, and ends nothing
        screen_with("sort name")
        os.write(ours, b"/job\x7fb")
        screen_with("search: job_")
        os.write(ours, b"\r")
        searched = screen_with("search 'job'")
        assert "another" not in searched.rpartition("lens top")[2]
        os.write(ours, b"f")
        screen_with("state failed")
        os.write(ours, b"q")
        assert process.wait(60) == 0
    assert termios.tcgetattr(theirs) == before, "the terminal is as it was"
    os.close(ours)
    os.close(theirs)


@given(st.text(max_size=200))
def test_no_key_breaks_the_view_of_top(text: str) -> None:
    view = TopView("llama", "failed,hung", "loss")
    for key in keys_in(text):
        if not view.press_key(key):
            assert key in ("q", "Q", "escape")
            view = TopView()
        assert view.wanted["sort"] in ("", *SORTS)
        assert "\n" not in view.footer()


def test_top_on_a_dumb_terminal_prints_lines(lens: RunningLens) -> None:
    lens.post("/wandb/metrics", {**metrics_body("job", range(20)), "pod_name": ""})
    lens.drained()
    shown = on_a_terminal(["top", "--url", lens.url], 80, "job", TERM="dumb")
    assert "default → store" in shown
    assert "\x1b" not in shown


def test_a_pipe_that_has_few_letters_gets_other_signs(lens: RunningLens) -> None:
    command = [sys.executable, "-m", "lens_core.cli", "top", "--url", lens.url]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=240)
    assert b"default -> store" in done.stdout, done.stderr


@contextmanager
def refusing() -> Iterator[tuple[str, threading.Event]]:
    """A Lens that will never take anything (422), until the event is set."""
    taken = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            refusal = b'{"code": "RequestParameterInvalid", "message": "never"}'
            answer = b'{"success": true}' if taken.is_set() else refusal
            self.send_response(200 if taken.is_set() else 422)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/records", taken
        finally:
            server.shutdown()
            thread.join()


def test_replay_says_how_many_letters_it_sent(tmp_path: Path, run: Callable[..., tuple[int, str]]) -> None:
    with refusing() as (url, taken):
        lens = RunningLens(tmp_path / "lens", f"sinks: {{picky: {{type: http, url: '{url}'}}}}\n").start()
        try:
            lens.post("/wandb/metrics", metrics_body("w", range(3)))
            wait_for(lambda: _dead_letters(lens) == 3, 240, "three dead letters")
            code, text = run("replay", "--list", "--url", lens.url)
            assert code == 0
            assert "/picky: 3 record(s), the last" in text
            code, text = run("replay", "--list", "--json", "--sink", "picky", "--url", lens.url)
            (listed,) = json.loads(text)
            assert (listed["records"], listed["sink"], code) == (3, "picky", 0)
            assert lens.get("/status")["pipelines"][0]["sinks"][0]["dead_letter_reason"] == listed["reason"]
            assert f"Sink picky refused a record: {listed['reason']}" in lens.log.read_text()
            assert run("replay", "--json", "--url", lens.url)[0] == 2
            taken.set()
            code, text = run("replay", "--sink", "picky", "--url", lens.url)
            assert (code, text) == (0, "3 dead letter(s) are on their way again.\n")
            wait_for(lambda: _dead_letters(lens) == 0, 240, "no dead letter")
        finally:
            lens.end()


def _dead_letters(lens: RunningLens) -> int:
    return int(lens.get("/status")["pipelines"][0]["sinks"][0]["dead_letters"])


@given(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12), st.integers(1, 40), st.integers(20, 100))
def test_a_long_line_is_wrapped_between_words_alone(word: str, count: int, width: int) -> None:
    line = "  " + " ".join([word] * count)
    parts = wrap_line(line, width)
    assert " ".join(parts).split() == line.split()
    assert all(len(part) <= width for part in parts)
    assert all(part.startswith("    ") for part in parts[1:])


@pytest.mark.parametrize("command", [["graph"], ["plugins"], ["doctor", "--url", "http://127.0.0.1:1"]])
def test_a_terminal_without_other_letters_gets_none(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    text = CliRunner().invoke(cli, command).output
    assert len(text) > 200
    assert text.isascii(), sorted({letter for letter in text if not letter.isascii()})
