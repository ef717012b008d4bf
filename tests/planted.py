"""Plugins that misbehave, one of each kind; a plugin file for a daemon and classes for the contract checks."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from lens_core import (
    Answer,
    Batch,
    Collector,
    Context,
    Delivered,
    Detector,
    IngestRequest,
    LogFormat,
    Record,
    Reply,
    Route,
    Sink,
    Source,
    hookimpl,
)


def is_broken() -> bool:
    """Whether what can be fixed is still broken: while the file that PLANTED_BROKEN names is there."""
    return os.path.exists(os.environ.get("PLANTED_BROKEN", "/nonexistent"))


class BrokenSink(Sink):
    """Raises in start while it is broken."""

    name = "broken_sink"

    async def start(self) -> None:
        if is_broken():
            raise RuntimeError("no such account")
        self.is_started = True

    async def send(self, batch: Batch) -> Answer:
        assert self.is_started
        (self.context.data_dir / "sent").write_text(str(len(batch.records)))
        return Delivered()


class BrokenSource(Source):
    """Raises in start while it is broken."""

    name = "broken_source"

    async def start(self) -> None:
        if is_broken():
            raise OSError("the port is taken")


class BrokenCollector(Collector):
    """Raises in start while it is broken."""

    name = "broken_collector"
    interval_seconds = 1.0

    async def start(self) -> None:
        if is_broken():
            raise ValueError("no such device")

    async def collect(self) -> Sequence[Record]:
        return []


class BlockingSink(Sink):
    """Blocks the loop in send."""

    name = "blocking_sink"

    async def send(self, batch: Batch) -> Answer:
        time.sleep(0.8)
        return Delivered()


class BusyCollector(Collector):
    """Computes without end, in the loop."""

    name = "busy_collector"

    async def collect(self) -> Sequence[Record]:
        await asyncio.sleep(1.0)
        while True:
            pass


class DeafCollector(Collector):
    """Ignores its cancellation."""

    name = "deaf_collector"

    async def collect(self) -> Sequence[Record]:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue


class ExitingSink(Sink):
    """Calls sys.exit, in its call and in a task of its own."""

    name = "exiting_sink"

    async def send(self, batch: Batch) -> Answer:
        self.task = asyncio.create_task(self.leave())
        await asyncio.sleep(0.01)
        sys.exit(4)

    async def leave(self) -> None:
        sys.exit(5)


class DeafSink(Sink):
    """Ignores that its send is cancelled."""

    name = "deaf_sink"

    async def send(self, batch: Batch) -> Answer:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue


class LeakingSink(Sink):
    """Keeps 40 MB of each batch."""

    name = "leaking_sink"

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self.kept: list[bytearray] = []

    async def send(self, batch: Batch) -> Answer:
        self.kept.append(bytearray(40_000_000))
        await asyncio.sleep(0)
        return Delivered()


class HangingSink(Sink):
    """Sleeps for ever in its event loop."""

    name = "hanging_sink"

    async def send(self, batch: Batch) -> Answer:
        time.sleep(36_000)
        return Delivered()


class BusyHelperSource(Source):
    """Has a thread that computes without end and never lets go of the interpreter for long."""

    name = "busy_helper"

    async def run(self) -> None:
        self.helpers = [threading.Thread(target=self.compute, daemon=True) for _ in range(1)]
        for helper in self.helpers:
            helper.start()
        await asyncio.Event().wait()

    def compute(self) -> None:
        while True:
            sum(range(1000))


class CopycatSource(Source):
    """Wants a path of Lens' own."""

    name = "copycat"

    def routes(self) -> Sequence[Route]:
        return [Route(paths=["/replay"], handler=self.answer)]

    async def answer(self, request: IngestRequest) -> Reply:
        return Reply()


class DeafStop(Source):
    """Never ends its stop."""

    name = "deaf_stop"

    async def stop(self) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue


class EvilDetector(Detector):
    """Has a pattern that backtracks without end."""

    name = "evil_detector"
    layer = "base"
    formats = (LogFormat(name="line", words=("evil",), head=r"evil step (?P<iteration>\d+) ((?:\w+\s?)+)+!done"),)


@hookimpl
def lens_sinks() -> list[type[Sink]]:
    """The sinks of this file."""
    return [BrokenSink, BlockingSink, LeakingSink, HangingSink, ExitingSink, DeafSink]


@hookimpl
def lens_sources() -> list[type[Source]]:
    """The sources of this file."""
    return [BrokenSource, DeafStop, BusyHelperSource, CopycatSource]


@hookimpl
def lens_collectors() -> list[type[Collector]]:
    """The collectors of this file."""
    return [BrokenCollector, BusyCollector, DeafCollector]


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detectors of this file."""
    return [EvilDetector]
