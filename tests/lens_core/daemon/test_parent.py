"""A private daemon stops with the process that it serves."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import psutil
import pytest

from lens_core.daemon import stopping


async def test_the_end_of_a_process_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "LOOK_SECONDS", 0.01)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        waiting = asyncio.create_task(stopping.wait_for_exit(process.pid))
        assert await asyncio.wait([waiting], timeout=0.05) == (set(), {waiting})
        process.kill()  # not waited for: its entry stays
        await asyncio.wait_for(waiting, 60)
    await asyncio.wait_for(stopping.wait_for_exit(process.pid), 60)


async def test_a_process_that_goes_while_it_is_looked_at_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_status(process: psutil.Process) -> str:
        raise psutil.NoSuchProcess(process.pid)

    monkeypatch.setattr(psutil.Process, "status", find_status)
    await asyncio.wait_for(stopping.wait_for_exit(psutil.Process().pid), 60)
