"""`lens run --log`: output passes through, lines are sent, codes and signals stay what they are."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Any, cast

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Event
from lens_core.cli.run_log import MAX_BATCH_LINES, MAX_WAITING_BYTES, LineSender
from lens_core.records import decode_envelope
from lens_core.testing import HttpReceiver, until
from tests.forked import forked_command

# In an interpreter of its own, where signals and closed outputs are what is tested.
OWN = [sys.executable, "-m", "lens_core.cli", "run", "--log"]


def lens_run(*arguments: str) -> list[str]:
    """`lens run --log` with arguments."""
    return [*forked_command(), "run", "--log", *arguments]


async def start(url: str, *command: str, **variables: str) -> asyncio.subprocess.Process:
    """Run a command of the workload `w`, or of the job that variables name."""
    others = ("PRIMUS_", "WORKLOAD", "POD_", "SLURM")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(others)}
    return await asyncio.create_subprocess_exec(
        *lens_run(),
        *("--url", url, *(() if variables else ("--workload", "w")), "--", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**environment, **variables},
    )


def entries(receiver: HttpReceiver) -> list[dict[str, Any]]:
    logs = [request for request in receiver.received if request.target.endswith("/logs")]
    return [entry for request in logs for entry in json.loads(request.body)]


def python(*lines: str) -> Sequence[str]:
    return [sys.executable, "-c", "\n".join(("import sys, time, signal", *lines))]


async def test_lines_go_to_the_terminal_and_to_lens() -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        script = python("print('step: 1', flush=True)", "sys.stderr.write('a\\rb\\r')", "sys.exit(3)")
        process = await start(receiver.url, *script)
        out, err = await asyncio.wait_for(process.communicate(), 240)
        assert (process.returncode, out) == (3, b"step: 1\n")
        assert err.endswith(b"\na\rb\r")
        found = entries(receiver)
    assert sorted((entry["stream"], entry["message"]) for entry in found) == [
        ("stderr", "a"),
        ("stderr", "b"),
        ("stdout", "step: 1"),
    ]
    assert {entry["workload_uid"] for entry in found} == {"w"}
    assert all(isinstance(entry["date"], float) for entry in found)


async def test_the_lines_of_a_job_of_slurm_belong_to_the_workload_of_its_rows() -> None:
    """The hook calls the job slurm-17; lines under the host's name would make a second workload of it."""
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        variables = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "3", "SLURMD_NODENAME": "node-1"}
        process = await start(receiver.url, *python("print('one')", "sys.exit(2)"), **variables)
        _, err = await asyncio.wait_for(process.communicate(), 240)
        (entry,) = entries(receiver)
        (event,) = ends(receiver)
    assert (entry["workload_uid"], entry["node"], entry["rank"]) == ("slurm-17", "node-1", 3)
    assert (event.origin.workload_uid, event.origin.rank) == ("slurm-17", 3)
    assert f"lens: this run is workload slurm-17: {receiver.url}/#/workload?uid=slurm-17".encode() in err


def ends(receiver: HttpReceiver) -> list[Event]:
    sent = [request for request in receiver.received if request.target.endswith("/records")]
    return [record for request in sent for record in decode_envelope(request.body).records if isinstance(record, Event)]


@pytest.mark.parametrize(
    ("lines", "code", "reason", "sign"),
    [
        (["sys.exit(3)"], 3, "exit code 3", None),
        (["sys.exit('no GPU here')"], 1, "no GPU here", None),
        (["raise ValueError('boom')"], 1, "ValueError: boom", None),
        (["print('[rank7]: torch.OutOfMemoryError: out')", "sys.exit(9)"], 9, "torch.OutOfMemoryError: out", None),
        (["import os; os.kill(os.getpid(), signal.SIGKILL)"], -9, "killed by SIGKILL", "SIGKILL"),
        (["sys.exit(143)"], 143, "exit code 143", "SIGTERM"),
        (["import os; os._exit(5)"], 5, "exit code 5", None),
        (["raise SystemExit(6)"], 6, "exit code 6", None),
        (["sys.stderr.write('token sk-0123456789abcdef0123 refused')", "sys.exit(1)"], 1, "token *** refused", None),
    ],
)  # fmt: skip
async def test_a_command_that_fails_is_told_with_its_code_and_last_error(
    lines: list[str], code: int, reason: str, sign: str | None
) -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        process = await start(receiver.url, *python("print('step: 1', flush=True)", *lines))
        assert await asyncio.wait_for(process.wait(), 240) == (128 - code if code < 0 else code)
        (event,) = ends(receiver)
    assert (event.type, event.origin.workload_uid, event.data_source) == ("training_failed", "w", "log")
    assert (event.details["exit_code"], event.details["reason"]) == (code, reason)
    assert event.details.get("signal") == sign


@pytest.mark.parametrize(("last", "types"), [("", []), ("sys.stderr.write('going on without it')", ["training_ended"])])
async def test_a_command_that_ends_well_is_no_failure(last: str, types: list[str]) -> None:
    """The end of the command must not hide the failure of a process whose exception was the last word."""
    script = ("import traceback", "try: 1 / 0", "except ZeroDivisionError: traceback.print_exc()", last)
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        process = await start(receiver.url, *python(*script))
        assert await asyncio.wait_for(process.wait(), 240) == 0
        found = ends(receiver)
    assert [event.type for event in found] == types
    assert all(event.details == {"exit_code": 0} for event in found)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
async def test_a_signal_reaches_the_command(name: str) -> None:
    """Slurm sends SIGUSR1 before the time limit, for example: it must neither end `lens run` nor be lost."""
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        # The child waits for the signal itself: one that came just before a sleep would be seen after it.
        script = python(
            f"signal.pthread_sigmask(signal.SIG_BLOCK, [signal.{name}])",
            "print('up', flush=True)",
            f"signal.sigwait([signal.{name}])",
            "print('bye', flush=True)",
            "sys.exit(7)",
        )
        command = [*OWN, "--url", receiver.url, "--workload", "w", "--", *script]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 240) == b"up\n"
        process.send_signal(getattr(signal, name))
        assert await asyncio.wait_for(process.wait(), 240) == 7
        await until(lambda: len(entries(receiver)) == 2, "both lines came")


async def test_a_command_starts_with_the_signals_that_we_had() -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        process = await start(receiver.url, *python("print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"))
        out, _ = await asyncio.wait_for(process.communicate(), 240)
    assert out == b"set()\n"


@pytest.mark.parametrize("redirection", [">/dev/full", ">/dev/full 2>/dev/full", ">&-", ">&- 2>&-", "2>&-"])
async def test_a_command_runs_to_its_end_where_its_output_cannot_be_written(redirection: str) -> None:
    """A full disk and a closed output neither stop the command, nor change its code, nor keep its lines from Lens."""
    lines = ("for step in range(3000): print('step:', step, 'loss:', 0.5, '.' * 80)", "sys.exit(3)")
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        # A process that starts with closed outputs has what it opens first in their place: one of its own, not a fork.
        command = shlex.join([*OWN, "--url", receiver.url, "--workload", "w", "--", *python(*lines)])
        process = await asyncio.create_subprocess_exec("sh", "-c", f"exec {command} {redirection}")
        assert await asyncio.wait_for(process.wait(), 240) == 3
        assert len([entry for entry in entries(receiver) if entry["stream"] == "stdout"]) == 3000
        assert [event.type for event in ends(receiver)] == ["training_failed"]


async def test_a_non_blocking_output_gets_every_byte() -> None:
    """Another process with the same terminal may have set it so; a write then takes a part, or fails."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    async with HttpReceiver(max_body_bytes=1 << 24) as receiver:
        command = lens_run("--url", receiver.url, "--workload", "w", "--", *python("print('x' * 1000000)"))
        process = await asyncio.create_subprocess_exec(*command, stdout=writes)
        os.close(writes)
        with open(reads, "rb") as pipe:
            assert len(await asyncio.to_thread(pipe.read)) == 1_000_001
        assert await asyncio.wait_for(process.wait(), 240) == 0


async def test_a_command_that_is_killed_ends_as_in_a_shell() -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        process = await start(receiver.url, *python("import os", "os.kill(os.getpid(), signal.SIGKILL)"))
        assert await asyncio.wait_for(process.wait(), 240) == 128 + signal.SIGKILL


async def test_nobody_to_send_to_is_said_and_stops_nothing() -> None:
    async with HttpReceiver() as receiver:
        url = receiver.url
    process = await start(url, *python("print('one')"))
    out, err = await asyncio.wait_for(process.communicate(), 240)
    assert (process.returncode, out) == (0, b"one\n")
    assert b"lens: 1 lines of output were not sent: http://" in err
    assert b"lens: the end of the command was not reported: http://" in err


async def test_a_receiver_that_stays_broken_is_asked_a_few_times_a_second_at_the_end() -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        await receiver.trouble("error")
        process = await start(receiver.url, *python("print('one')"))
        _, err = await asyncio.wait_for(process.communicate(), 240)
        assert b"lens: 1 lines of output were not sent" in err
        assert 1 < receiver.requests < 40


@pytest.mark.parametrize(
    "variables",
    [
        {"http_proxy": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1"},
        {"ALL_PROXY": "socks5://127.0.0.1:1"},
        {"http_proxy": "nonsense://["},
    ],
)
async def test_lines_take_the_way_of_the_rows_past_proxies(variables: dict[str, str]) -> None:
    """Pods have proxies for package indexes; the hook reads them only where PRIMUS_LENS_PROXY says so."""
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        told = "import os; print(os.environ['NO_PROXY'])"
        process = await start(receiver.url, *python(told), WORKLOAD_UID="w", NO_PROXY="example.com", **variables)
        out, err = await asyncio.wait_for(process.communicate(), 240)
        (entry,) = entries(receiver)
    assert (process.returncode, entry["message"]) == (0, out.decode().strip())
    assert out == b"example.com\n"
    assert err.count(b"\n") == 1


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"PRIMUS_LENS_API_BASE_URL": "http://[::1/api/v1"}, "http://[::1/api/v1/"),
        ({"PRIMUS_LENS_API_BASE_URL": "http://127.0.0.1:99999/api/v1"}, "http://127.0.0.1:99999/api/v1/"),
        ({"PRIMUS_LENS_API_BASE_URL": "lens:8080/api/v1"}, "lens:8080/api/v1/"),
        ({"PRIMUS_LENS_API_BASE_URL": "http://lens.invalid", "PRIMUS_LENS_PROXY": "socks5://p"}, "PRIMUS_LENS_PROXY"),
        ({"PRIMUS_LENS_API_BASE_URL": "http://127.0.0.1:1", "PRIMUS_LENS_API_TOKEN": "geheim-ü"}, "'ascii' codec"),
        ({"PRIMUS_LENS_API_BASE_URL": "http://127.0.0.1:1", "PRIMUS_LENS_API_TOKEN": "a\nb"}, "http://127.0.0.1:1/"),
    ],
)
async def test_a_setting_that_cannot_work_ends_no_command(variables: dict[str, str], problem: str) -> None:
    others = ("PRIMUS_", "WORKLOAD", "POD_", "SLURM", "LENS_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(others)}
    command = lens_run("--workload", "w", "--", *python("print('one')", "sys.exit(4)"))
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**environment, **variables}
    )
    out, err = await asyncio.wait_for(process.communicate(), 240)
    assert (process.returncode, out) == (4, b"one\n")
    assert f"lens: 1 lines of output were not sent: {problem}" in err.decode()
    assert "Traceback" not in err.decode()
    assert variables.get("PRIMUS_LENS_API_TOKEN", "nothing") not in err.decode()


async def test_a_receiver_that_is_busy_gets_the_lines_later() -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        await receiver.trouble("error")
        process = await start(receiver.url, *python("print('one', flush=True)", "sys.stdin.read()", "time.sleep(2)"))
        await until(lambda: receiver.requests > 0, "it was tried")
        await receiver.trouble(None)
        await until(lambda: [entry["message"] for entry in entries(receiver)] == ["one"], "the line came")
        assert await asyncio.wait_for(process.wait(), 240) == 0


async def test_what_is_no_lens_neither_takes_nor_refuses_lines() -> None:
    """A proxy's 400 and a login page with 200, then a Lens: the lines come again until it has them."""
    pages = iter([(400, b"<html>HTTPS port</html>"), (200, b"<html>sign in</html>"), (200, b"{}")])

    class Posted:
        def post(self, url: str, content: bytes) -> httpx.Response:
            status, body = next(pages)
            return httpx.Response(status, content=body)

    sender = LineSender("http://127.0.0.1:1/logs", "", {"pod_name": "p"})
    sender.append_line("stdout", "loss: 1")
    client = cast(httpx.Client, Posted())
    assert [sender._send_batch(client) for _ in range(3)] == [False, False, True]
    assert sender.dropped == 0


class Limited:
    """Answers like a Lens that takes bodies up to a limit."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self.messages: list[str] = []

    def post(self, url: str, content: bytes) -> httpx.Response:
        if len(content) > self.max_body_bytes:
            return httpx.Response(413, content=b'{"code": "TooLarge", "message": "too large"}')
        self.messages += [entry["message"] for entry in json.loads(content)]
        return httpx.Response(200, content=b"{}")


@given(
    st.lists(st.integers(0, 300_000), max_size=60),
    st.sampled_from(["x", "\0", "é", "\N{GRINNING FACE}"]),
    st.integers(3_000, 1 << 24),
)
def test_lines_of_any_size_arrive_whatever_a_body_may_hold(sizes: list[int], letter: str, limit: int) -> None:
    """Each line that fits into a body of its own arrives once and in order; the others are counted."""
    sender, receiver = LineSender("http://127.0.0.1:1/logs", "", {"pod_name": "p"}), Limited(limit)
    lines = [f"{number} " + letter * size for number, size in enumerate(sizes)]
    for line in lines:
        sender.append_line("stdout", line)
    waiting = [line for _, _, line in sender._waiting]
    assert lines[len(lines) - len(waiting) :] == waiting
    assert sum(map(sys.getsizeof, waiting)) <= MAX_WAITING_BYTES
    while sender._waiting:
        sender._send_batch(cast(httpx.Client, receiver))
    envelope = len(json.dumps([{"date": 1e9 + 0.1234567, "stream": "stdout", "message": "", "pod_name": "p"}]))
    for line in waiting:
        fits = len(msgspec.json.encode(line)) + envelope <= limit - 16
        assert line in receiver.messages or not fits
    assert receiver.messages == [line for line in waiting if line in set(receiver.messages)]
    assert sender.dropped == len(lines) - len(receiver.messages)


def test_short_lines_take_no_more_memory_than_long_ones() -> None:
    sender = LineSender("http://127.0.0.1:1/logs", "", {"pod_name": "p"})
    for _ in range(200_000):
        sender.append_line("stdout", "x")
    assert len(sender._waiting) * 128 < MAX_WAITING_BYTES
    assert sender.dropped == 200_000 - len(sender._waiting)
    assert sender.problem == "more than 16 MiB waited"


def test_a_daemon_that_is_slow_at_the_end_gets_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts from the newest batch that was accepted: a daemon that takes lines is waited for."""
    clock = [1000.0]
    answered: list[int] = []

    def post(client: httpx.Client, url: str, content: bytes) -> httpx.Response:
        clock[0] += 4.0  # of the five seconds
        answered.append(len(json.loads(content)))
        return httpx.Response(200, content=b"{}")

    monkeypatch.setattr(httpx.Client, "post", post)
    monkeypatch.setattr("lens_core.cli.run_log.time.monotonic", lambda: clock[0])
    sender = LineSender("http://127.0.0.1:1/logs", "", {"pod_name": "p"})
    for number in range(5 * MAX_BATCH_LINES):
        sender.append_line("stdout", str(number))
    sender.start()
    sender.stop()
    sender._thread.join()
    assert (sum(answered), sender.dropped) == (5 * MAX_BATCH_LINES, 0)
