"""Calls are measured step by step; the component in whose steps the daemon's memory grew is named, and nobody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.base.self_metrics import SelfMetrics
from lens_core.daemon.call_meter import MEBIBYTE, CallMeter, MemoryWatch, memory_bytes


class Memory:
    """The memory of a process that a test moves."""

    def __init__(self) -> None:
        self.held = 100 * MEBIBYTE

    def read(self) -> int:
        return self.held


def meter(memory: Memory) -> CallMeter:
    return CallMeter("sink", "send", "lens-acme 1.0", SelfMetrics(), memory.read)


@given(own=st.lists(st.integers(-50, 50), max_size=5), others=st.integers(-50, 50))
def test_only_what_grows_in_a_components_own_steps_is_its_growth(own: list[int], others: int) -> None:
    memory = Memory()

    async def send() -> str:
        for grown in own:
            memory.held += grown
            await asyncio.sleep(0)
        return "delivered"

    async def other() -> None:
        for _ in range(len(own)):
            memory.held += others
            await asyncio.sleep(0)

    async def both() -> str:
        answer, _ = await asyncio.gather(measured.measure(send()), other())
        return answer

    measured = meter(memory)
    assert asyncio.run(both()) == "delivered"
    assert (measured.grown_bytes, measured.calls) == (sum(own), 1)


async def test_errors_and_cancellations_pass_through() -> None:
    cleaned = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("it broke")

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    async def deaf() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7
        return 0

    async def cancelled(asked: Coroutine[Any, Any, Any]) -> Any:
        task = asyncio.ensure_future(meter(Memory()).measure(asked))
        await asyncio.sleep(0.01)
        task.cancel()
        return await task

    with pytest.raises(ValueError, match="it broke"):
        await meter(Memory()).measure(fail())
    with pytest.raises(asyncio.CancelledError):
        await cancelled(hang())
    assert cleaned == [True]
    assert await cancelled(deaf()) == 7


async def grow(watch: MemoryWatch, memory: Memory, component: str, mebibytes: int) -> None:
    async def call() -> None:
        memory.held += mebibytes * MEBIBYTE

    await watch.meter(component, "send", f"lens-{component} 1.0").measure(call())
    watch.check_memory()


async def test_who_grows_most_is_named_and_named_again_when_it_grows_on(caplog: pytest.LogCaptureFixture) -> None:
    memory = Memory()
    watch = MemoryWatch(SelfMetrics(), memory.read)
    watch.check_memory()
    await grow(watch, memory, "good", 40)
    for _ in range(10):
        await grow(watch, memory, "leak", 20)
    assert list(watch.found()) == []  # 240 MiB are not suspicious yet
    with caplog.at_level(logging.WARNING, "lens.memory"):
        for _ in range(20):
            await grow(watch, memory, "leak", 20)
    (found,) = watch.found()
    assert (found.component, found.distribution) == ("leak", "lens-leak 1.0")
    assert 1 < len(caplog.records) < 4
    assert "plugin lens-leak 1.0: send of leak grew the daemon's memory by" in caplog.text


async def test_memory_that_nobody_is_seen_to_take_is_nobodys() -> None:
    memory = Memory()
    watch = MemoryWatch(SelfMetrics(), memory.read)
    watch.check_memory()
    await grow(watch, memory, "small", 100)
    memory.held += 500 * MEBIBYTE
    watch.check_memory()
    assert list(watch.found()) == []


async def test_memory_that_was_given_back_is_no_growth() -> None:
    memory = Memory()
    watch = MemoryWatch(SelfMetrics(), memory.read)
    watch.check_memory()
    for _ in range(30):
        await grow(watch, memory, "caches", 100)
        memory.held -= 100 * MEBIBYTE  # given back by others
    assert list(watch.found()) == []


def test_the_memory_of_this_process_is_read() -> None:
    before = memory_bytes()
    kept = bytearray(64 * MEBIBYTE)
    assert memory_bytes() - before > 32 * MEBIBYTE
    del kept
