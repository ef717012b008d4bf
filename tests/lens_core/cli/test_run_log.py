"""`lens run --log`: output passes through, lines are sent, codes and signals stay what they are."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, cast

import httpx
import pytest

from lens_core import Event
from lens_core.cli.run_log import LineSender
from lens_core.records import decode_envelope
from lens_core.testing import HttpReceiver, until

LENS = [sys.executable, "-m", "lens_core.cli", "run", "--log"]


async def start(url: str, *command: str, workload: str = "w") -> asyncio.subprocess.Process:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PRIMUS_", "WORKLOAD", "POD_"))
    }
    return await asyncio.create_subprocess_exec(
        *LENS,
        *("--url", url, "--workload", workload, "--", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
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


def failures(receiver: HttpReceiver) -> list[Event]:
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
        (event,) = failures(receiver)
    assert (event.type, event.origin.workload_uid, event.data_source) == ("training_failed", "w", "log")
    assert (event.details["exit_code"], event.details["reason"]) == (code, reason)
    assert event.details.get("signal") == sign


async def test_a_command_that_ends_well_is_no_failure() -> None:
    script = ("import traceback", "try: 1 / 0", "except ZeroDivisionError: traceback.print_exc()")
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        process = await start(receiver.url, *python(*script))
        assert await asyncio.wait_for(process.wait(), 240) == 0
        assert failures(receiver) == []


async def test_a_signal_reaches_the_command() -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        # The child waits for the signal itself: one that came just before a sleep would be seen after it.
        script = python(
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])",
            "print('up', flush=True)",
            "signal.sigwait([signal.SIGTERM])",
            "print('bye', flush=True)",
            "sys.exit(7)",
        )
        process = await start(receiver.url, *script)
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 240) == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 240) == 7
        await until(lambda: len(entries(receiver)) == 2, "both lines came")


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
    assert b"lens: 1 lines of output were not sent" in err


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
