"""`lens run --log`: output passes through, lines are sent, codes and signals stay what they are."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

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


async def test_a_signal_reaches_the_command() -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        script = python(
            "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(7)))",
            "print('up', flush=True)",
            "time.sleep(60)",
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
