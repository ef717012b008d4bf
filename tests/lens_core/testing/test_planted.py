"""The contract checks end with a message about plugins that hang, block, leak, are deaf or cannot start."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from lens_core import (
    Answer,
    Batch,
    Collector,
    Context,
    Delivered,
    Detector,
    EventPattern,
    IngestRequest,
    LogFormat,
    Record,
    Reply,
    Route,
    Sink,
    Source,
    StepMetrics,
)
from lens_core.testing import (
    SINK_CHECKS,
    SinkHarness,
    check_collector,
    check_detector,
    check_source,
    make_context,
    watching,
)
from tests.lens_core.pipeline.collectors_for_tests import Alone, OddSettings
from tests.planted import EvilDetector


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for what hangs."""
    monkeypatch.setattr(watching, "CHECK_SECONDS", 8.0)
    monkeypatch.setattr(watching, "CALL_SECONDS", 2.0)
    monkeypatch.setattr(watching, "HELD_SECONDS", 1.5)


class Kept(Sink):
    """Keeps what it gets."""

    name = "kept"
    rows: ClassVar[list[StepMetrics]] = []

    async def send(self, batch: Batch) -> Answer:
        Kept.rows.extend(row for row in batch.records if isinstance(row, StepMetrics))
        return Delivered()


class Hangs(Kept):
    """Never answers."""

    async def send(self, batch: Batch) -> Answer:
        await asyncio.Event().wait()
        return Delivered()


class Blocks(Kept):
    """Sleeps in the loop."""

    async def send(self, batch: Batch) -> Answer:
        time.sleep(0.7)
        return await super().send(batch)


class BusyHelper(Kept):
    """Has a task of its own that computes in the loop."""

    async def start(self) -> None:
        self.helper = asyncio.create_task(self.compute())

    async def stop(self) -> None:
        if hasattr(self, "helper"):
            self.helper.cancel()

    async def compute(self) -> None:
        while True:
            ends = time.thread_time() + 0.7
            while time.thread_time() < ends:
                pass
            await asyncio.sleep(0.01)


class SleepsForEver(Kept):
    """Sleeps in the loop for ten hours, whatever is raised in it."""

    async def send(self, batch: Batch) -> Answer:
        while True:
            try:
                time.sleep(36_000)
            except Exception:  # noqa: BLE001 - it is meant to swallow everything
                continue


class ComputesForEver(Kept):
    """Never ends its computation in the loop."""

    async def start(self) -> None:
        while True:
            pass


class BusyThread(Kept):
    """Has a thread that computes all the time, until it is stopped."""

    is_stopped = False

    async def start(self) -> None:
        threading.Thread(target=self.compute, daemon=True).start()

    async def stop(self) -> None:
        self.is_stopped = True

    def compute(self) -> None:
        while not self.is_stopped:
            sum(range(1000))


class Spinning(Kept):
    """Has a task that looks repeatedly, without a pause."""

    async def start(self) -> None:
        self.task = asyncio.create_task(self.spin())

    async def stop(self) -> None:
        if hasattr(self, "task"):
            self.task.cancel()

    async def spin(self) -> None:
        while True:
            await asyncio.sleep(0)


class SharedFileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that it writes."""

    path: Path


class SharedFile(Kept):
    """Writes a file that it does not name."""

    Settings = SharedFileSettings

    async def send(self, batch: Batch) -> Answer:
        with self.settings.path.open("a") as file:
            file.write("rows")
        return await super().send(batch)


class RaisesInStart(Kept):
    """Cannot be started."""

    async def start(self) -> None:
        raise RuntimeError("no such account")


class Leaks(Kept):
    """Keeps 20 MB of each batch."""

    kept: ClassVar[list[bytearray]] = []

    async def send(self, batch: Batch) -> Answer:
        self.kept.append(bytearray(20_000_000))
        return Delivered()


class Harness(SinkHarness):
    """Any of these sinks."""

    def __init__(self, kind: type[Kept], folder: Path) -> None:
        self.kind, self.folder = kind, folder
        Kept.rows.clear()

    def make_sink(self) -> Sink:
        settings = SharedFileSettings(self.folder / "rows.txt") if self.kind is SharedFile else None
        return self.kind(settings, make_context("planted", self.folder / "own"))

    async def stored(self) -> Counter[int]:
        return Counter(row.row_step for row in Kept.rows)


@pytest.mark.parametrize(
    ("kind", "check", "finding"),
    [
        (Hangs, "everything_arrives_once", "hangs|no answer"),
        (Hangs, "memory_does_not_grow", r"send\(\) hangs: no answer within 2 s; it waits in send"),
        (Blocks, "answers_make_sense", "send blocked the event loop for"),
        (BusyHelper, "everything_arrives_once", "compute blocked the event loop for"),
        (SleepsForEver, "everything_arrives_once", r"send blocked the event loop for [1-9]"),
        (SleepsForEver, "answers_make_sense", r"send blocked the event loop for [1-9]"),
        (ComputesForEver, "everything_arrives_once", r"start blocked the event loop for [1-9]"),
        (BusyThread, "idle_is_idle", "the sink computes while nothing is asked of it: compute"),
        (Spinning, "idle_is_idle", "the sink computes while nothing is asked of it: spin"),
        (SharedFile, "files_are_named", r"the sink writes .*rows\.txt, which occupies\(\) does not name"),
        (RaisesInStart, "everything_arrives_once", r"start\(\) raised RuntimeError: no such account"),
        (Leaks, "memory_does_not_grow", "leaks: 15. MiB more"),
    ],
)
async def test_what_a_sink_does_to_its_host_is_found(
    kind: type[Kept], check: str, finding: str, tmp_path: Path
) -> None:
    (found,) = [one for one in SINK_CHECKS if one.__name__ == f"check_{check}"]
    try:
        with pytest.raises(AssertionError, match=finding):
            await found(Harness(kind, tmp_path), tmp_path)
    finally:
        Leaks.kept.clear()


class Deaf(Collector):
    """Ignores its cancellation."""

    name = "deaf"
    calls = 0

    async def collect(self) -> Sequence[Record]:
        self.calls += 1
        while self.calls > 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue
        return []


class HangingCollector(Collector):
    """Never answers."""

    name = "hanging"
    timeout_seconds = 1.0

    async def collect(self) -> Sequence[Record]:
        await asyncio.Event().wait()
        return []


class BlockingCollector(Collector):
    """Sleeps in the loop."""

    name = "blocking"

    async def collect(self) -> Sequence[Record]:
        time.sleep(0.7)
        return []


class UnstartedCollector(Collector):
    """Cannot be started."""

    name = "unstarted"

    async def start(self) -> None:
        raise ValueError("no such device")

    async def collect(self) -> Sequence[Record]:
        return []


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (Deaf, "swallowed its cancellation"),
        (HangingCollector, r"collect\(\) hangs: no answer within 1 s"),
        (BlockingCollector, "collect blocked the event loop for"),
        (UnstartedCollector, r"start\(\) raised ValueError: no such device"),
    ],
)
async def test_what_a_collector_does_to_its_host_is_found(
    kind: type[Collector], finding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lens_core.testing.collectors._CANCEL_SECONDS", 0.5)
    with pytest.raises(AssertionError, match=finding):
        await check_collector(kind(None, make_context("planted", tmp_path)))


class EarlyAcknowledgement(Source):
    """Answers before its records are safe."""

    name = "early"

    def routes(self) -> Sequence[Route]:
        return [Route(paths=("/early",), handler=self.take)]

    async def take(self, request: IngestRequest) -> Reply:
        self.tasks = [
            asyncio.create_task(self.gate.submit([StepMetrics(data_source="x", row_step=1, values={"loss": 1.0})]))
        ]
        await asyncio.sleep(0.01)
        for task in self.tasks:
            if task.done():
                task.exception()
        return Reply()


class HangingSource(EarlyAcknowledgement):
    """Never answers."""

    async def take(self, request: IngestRequest) -> Reply:
        await asyncio.Event().wait()
        return Reply()


@pytest.mark.parametrize(
    ("kind", "finding"),
    [(EarlyAcknowledgement, "answered 200 although nothing was taken"), (HangingSource, "/early hangs")],
)
async def test_what_a_source_does_is_found(kind: type[Source], finding: str, tmp_path: Path) -> None:
    good = IngestRequest(body=b"{}", path="/early", method="POST", headers={}, query={})
    with pytest.raises(AssertionError, match=finding):
        await check_source(kind(None, make_context("planted", tmp_path)), [good])


class Copycat(EarlyAcknowledgement):
    """Wants the path of another source."""

    def __init__(self, settings: None, context: Context, path: str = "/records") -> None:
        super().__init__(settings, context)
        self.path = path

    def routes(self) -> Sequence[Route]:
        return [Route(paths=(self.path,), handler=self.take)]


@pytest.mark.parametrize(
    ("path", "finding"),
    [
        ("/records", r"POST /records is answered by records_api \(records_api\) and by planted"),
        ("/replay", "is a path of Lens' own"),
    ],
)
async def test_two_sources_on_one_path_are_found(path: str, finding: str, tmp_path: Path) -> None:
    good = IngestRequest(body=b"{}", path=path, method="POST", headers={}, query={})
    with pytest.raises(AssertionError, match=finding):
        await check_source(Copycat(None, make_context("planted", tmp_path), path), [good])


class NoSuchEvent(Detector):
    """Tells of an event that nobody knows."""

    name = "no_such_event"
    events = (EventPattern(type="training_begun", words=("begin",), pattern="begin"),)


class NoSuchWord(Detector):
    """Asks for a word that no line can hold."""

    name = "no_such_word"
    formats = (LogFormat(name="step", words=("Step:",), head=r"Step: (?P<iteration>\d+)"),)


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (NoSuchEvent, "there is no event type 'training_begun'"),
        (NoSuchWord, "no line holds the word 'Step:'"),
        (EvilDetector, r"the pattern of line takes too long on the line 'evil step . ' \+ 'a' \* n"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_found(kind: type[Detector], finding: str) -> None:
    with pytest.raises(AssertionError, match=finding):
        check_detector(kind)


async def test_an_isolated_collector_is_checked_in_a_process_of_its_own(tmp_path: Path) -> None:
    await check_collector(Alone(OddSettings(do="answer"), make_context("alone", tmp_path)))
