"""Contract checks for sinks, on the real path: a spool on disk, the delivery, the sink, its other side.

@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
async def test_contract(check, tmp_path):
    async with HttpReceiver() as receiver:
        await check(MyHarness(receiver), tmp_path)
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from ..base.errors import Overloaded
from ..base.self_metrics import SelfMetrics
from ..delivery.sending.policy import DeliverySettings
from ..delivery.sending.sender import SinkSlot
from ..delivery.spool.spool import Spool
from ..model.records import Origin, Record, StepMetrics
from ..pipeline.pipeline import Pipeline
from ..plugin_api.components import Sink
from ..plugin_api.sink_answers import Batch, BatchLimits, Delivered, Poisoned, Position, Rejected, Retry
from .files import written_files
from .receiver import Trouble
from .waiting import until
from .watching import LEAKED_BYTES, check_idle, give_up, grows, started, unblocked, within

_LIMITS = BatchLimits(max_records=100, max_wait_seconds=0.01)
_DELIVERY = DeliverySettings(retry_base_seconds=0.005, retry_cap_seconds=0.05, send_timeout_seconds=10.0)
_STOP_SECONDS = 1.0
# A record takes more than 20 bytes, and the spool that is filled holds 64 KiB.
_MORE_THAN_FITS = 20_000


class SinkHarness(ABC):
    """One sink and its other side in a test. Records are told apart by their numbers.

    `troubles` are what `trouble` can do to the other side. `exactly_once`: a batch that is sent again, and an answer
    that got lost, leave nothing twice.
    """

    troubles: ClassVar[Sequence[Trouble]] = ()
    exactly_once: ClassVar[bool] = False

    @abstractmethod
    def make_sink(self) -> Sink:
        """A new instance for the same other side, as after a restart of the daemon."""

    @abstractmethod
    async def stored(self) -> Counter[int]:
        """The numbers of the records that the other side holds, and how often it holds each."""

    async def trouble(self, kind: Trouble | None) -> None:
        """Make the other side misbehave from now on; None makes it well again."""

    def record(self, number: int) -> Record:
        """A record by which the other side can tell its number."""
        return StepMetrics(
            origin=Origin(workload_uid="contract-check", pod_name="pod-0", rank=0),
            data_source="wandb",
            run_id="run",
            session="session",
            row_step=number,
            event_time=1_700_000_000.0 + number,
            sequence=number + 1,
            values={"loss": 1.0 / (number + 1), "lr": 1e-4},
        )

    def odd_records(self) -> list[Record]:
        """Records with what is legal but rare; the sink may store them or reject them, each for itself."""
        return [*map(_odd_row, _ODD_VALUES)]


_ODD_VALUES: tuple[dict[str, float], ...] = (
    {"loss": math.nan, "grad_norm": math.inf, "other": -math.inf, "fine": 1.0},
    {"only": math.nan},
    {"größe/µ \U0001f600": 1.0, 'with blank, comma = and "quotes"': 2.0, "back\\slash": 3.0, "new\nline": 4.0},
    {"nul\0byte": 1.0, "\uffff": 2.0},
    {"x" * 5000: 1.0, "": 2.0},
    {"tiny": 5e-324, "huge": 1.7976931348623157e308, "minus_zero": -0.0, "whole": float(2**53)},
    {f"metric_{number}": float(number) for number in range(3000)},
    {"step": 1.0, "_step": 2.0, "created_at": 3.0, "history": 4.0},
    {},
)


def _odd_row(values: dict[str, float]) -> StepMetrics:
    number = _ODD_VALUES.index(values)
    return StepMetrics(
        origin=Origin(workload_uid="contract-check", pod_name="pod-0", labels={"täam": "ä=b,c"}, rank=2**31 - 1),
        data_source="wandb",
        run_id="odd 'run' \U0001f600",
        session="session",
        row_step=2**53 + number,
        iteration=2**62,
        event_time=1_700_000_000.0,
        sequence=2**62 + number,
        values=values,
        tags={"loss": {"phase": "träin"}},
    )


class _Road:
    """A pipeline with one sink, on a spool that outlives it."""

    def __init__(self, harness: SinkHarness, folder: Path, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self.sink = harness.make_sink()
        self._spool = Spool(folder / "spool.sqlite3", max_bytes=max_bytes)
        slot = SinkSlot(name="checked", sink=self.sink, limits=_LIMITS, delivery=_DELIVERY)
        self.pipeline = Pipeline("contract", self._spool, [slot], metrics=SelfMetrics())

    async def start(self) -> None:
        await started(self.sink)
        await self.pipeline.start()

    async def stop(self, deadline_seconds: float = 10.0) -> None:
        await self.pipeline.stop(deadline_seconds)
        await within(self.sink.stop(), "stop()")

    @property
    def pending(self) -> int:
        return self.pipeline.pipeline_status().sinks[0].pending_records

    def is_sending(self) -> bool:
        return self.pipeline.pipeline_status().sinks[0].state == "sending"

    def was_tried_again(self) -> bool:
        return self.pipeline.pipeline_status().sinks[0].retries >= 3

    @property
    def last_error(self) -> str:
        return self.pipeline.pipeline_status().sinks[0].last_error

    async def drained(self) -> None:
        await until(lambda: self.pending == 0, f"everything is delivered (last error: {self.last_error!r})")


@asynccontextmanager
async def _road(harness: SinkHarness, folder: Path, *, max_bytes: int = 64 * 1024 * 1024) -> AsyncIterator[_Road]:
    road = _Road(harness, folder, max_bytes=max_bytes)
    await road.start()
    try:
        yield road
    finally:
        await road.stop()


@asynccontextmanager
async def _started(sink: Sink) -> AsyncIterator[Sink]:
    await started(sink)
    try:
        yield sink
    finally:
        await within(sink.stop(), "stop()")


async def _assert_stored(harness: SinkHarness, numbers: Sequence[int], *, once: bool) -> None:
    stored = await harness.stored()
    lost = [number for number in numbers if not stored[number]]
    assert not lost, f"{len(lost)} of {len(numbers)} records are lost, the first is number {lost[0]}"
    if once:
        twice = [number for number in numbers if stored[number] > 1]
        assert not twice, f"{len(twice)} records are there more than once, the first is number {twice[0]}"


def _records(harness: SinkHarness, numbers: Sequence[int]) -> list[Record]:
    return [harness.record(number) for number in numbers]


def _first_of(harness: SinkHarness, *kinds: Trouble) -> Trouble | None:
    return next((kind for kind in kinds if kind in harness.troubles), None)


async def check_everything_arrives_once(harness: SinkHarness, folder: Path) -> None:
    """1,000 records in several submissions, without any trouble: all there, none twice."""
    async with _road(harness, folder) as road:
        for start in range(0, 1000, 250):
            await road.pipeline.submit(_records(harness, range(start, start + 250)))
        await road.drained()
        status = road.pipeline.pipeline_status().sinks[0]
        assert status.dead_letters == 0, f"the sink rejected ordinary records: {status.ledger.rejected}"
    await _assert_stored(harness, range(1000), once=True)


async def check_odd_values_lose_no_neighbour(harness: SinkHarness, folder: Path) -> None:
    """NaN, infinities, unicode, NUL bytes, 3,000 metrics, none at all: at worst rejected, each alone."""
    odd = harness.odd_records()
    mixed = [record for pair in zip(_records(harness, range(len(odd))), odd, strict=True) for record in pair]
    async with _road(harness, folder) as road:
        await road.pipeline.submit(mixed)
        await road.drained()
        status = road.pipeline.pipeline_status().sinks[0]
        ledger = status.ledger
        accounted = ledger.delivered + ledger.filtered + sum(ledger.rejected.values())
        assert accounted == len(mixed), f"of {len(mixed)} records {accounted} are accounted for"
        assert status.dead_letters <= len(odd), "ordinary records went to the dead letters"
    await _assert_stored(harness, range(len(odd)), once=harness.exactly_once)


async def check_no_trouble_loses_anything(harness: SinkHarness, folder: Path) -> None:
    """For each trouble that can be made: rows that come meanwhile wait, and arrive when it is over."""
    for round_, kind in enumerate(harness.troubles):
        numbers = range(round_ * 300, round_ * 300 + 300)
        async with _road(harness, folder / kind) as road:
            await harness.trouble(kind)
            await road.pipeline.submit(_records(harness, numbers))
            if kind == "too_large":
                await road.drained()  # smaller and smaller parts get through
            elif kind == "hang":
                await until(road.is_sending, "the sink sends")
            else:
                await until(road.was_tried_again, f"{kind} is tried again")
            await harness.trouble(None)
            await road.drained()
            dead = road.pipeline.pipeline_status().sinks[0].dead_letters
            assert dead == 0, f"{kind}: {dead} records went to the dead letters ({road.last_error})"
        await _assert_stored(harness, numbers, once=harness.exactly_once)


async def check_stopping_in_the_middle_loses_nothing(harness: SinkHarness, folder: Path) -> None:
    """Stopped while the other side hangs or is away: within the deadline, and the next process delivers."""
    away = _first_of(harness, "hang", "absent", "error")
    road = _Road(harness, folder)
    await road.start()
    await harness.trouble(away)
    await road.pipeline.submit(_records(harness, range(500)))
    began = time.monotonic()
    await road.stop(_STOP_SECONDS)
    seconds = time.monotonic() - began
    assert seconds < _STOP_SECONDS + 4, f"stopping took {seconds:.1f} s, {_STOP_SECONDS:g} s were allowed"
    await harness.trouble(None)
    async with _road(harness, folder) as again:
        await again.drained()
    await _assert_stored(harness, range(500), once=harness.exactly_once)


async def check_a_full_spool_keeps_what_it_took(harness: SinkHarness, folder: Path) -> None:
    """Filled up while the other side is away, then stopped: what was accepted arrives, what was not is refused."""
    away = _first_of(harness, "absent", "error", "hang")
    if away is None:
        return
    road = _Road(harness, folder, max_bytes=16 * 1024)
    await road.start()
    await harness.trouble(away)
    accepted: list[int] = []
    with contextlib.suppress(Overloaded):
        while len(accepted) < _MORE_THAN_FITS:  # a sink that throws records away never lets it fill up
            numbers = range(len(accepted), len(accepted) + 50)
            await road.pipeline.submit(_records(harness, numbers))
            accepted += numbers
    await road.stop(_STOP_SECONDS)
    await harness.trouble(None)
    async with _road(harness, folder) as again:
        await again.drained()
    await _assert_stored(harness, accepted, once=harness.exactly_once)
    assert max(await harness.stored()) < len(accepted), "records are stored that were refused at the gate"


async def check_a_batch_sent_again_changes_nothing(harness: SinkHarness, folder: Path) -> None:
    """The answer got lost, so the batch comes again with the same start and end: only for sinks that promise it."""
    if not harness.exactly_once:
        return
    for _ in range(2):
        async with _started(harness.make_sink()) as sink:
            for _ in range(2):
                answer = await sink.send(_make_batch(_records(harness, range(20)), 1))
                assert isinstance(answer, Delivered), f"a batch that was sent again is answered {answer!r}"
    await _assert_stored(harness, range(20), once=True)


async def check_answers_make_sense(harness: SinkHarness, folder: Path) -> None:
    """Whatever comes, the answer is one of the four, and rejected indexes are those of the batch."""
    async with _started(harness.make_sink()) as sink:
        for number, records in enumerate(([], _records(harness, [1]), harness.odd_records())):
            answer = await sink.send(_make_batch(records, number + 1))
            assert isinstance(answer, (Delivered, Retry, Rejected, Poisoned)), f"send() answered {answer!r}"
            if isinstance(answer, Rejected):
                wrong = [index for index in answer.items if not 0 <= index < len(records)]
                assert not wrong, f"send() rejected records that were not in the batch: {wrong}"
        limits = sink.limits()
        assert limits.max_records > 0
        assert limits.max_bytes > 0


async def check_a_sink_that_was_never_started_stops(harness: SinkHarness, folder: Path) -> None:
    """stop() without start(), and twice: what a failed start of another component leads to."""
    sink = harness.make_sink()
    await sink.stop()
    again = harness.make_sink()
    await started(again)
    await again.stop()
    await again.stop()


async def check_cancelling_is_obeyed(harness: SinkHarness, folder: Path) -> None:
    """send() is cancelled when its time is up; it must not go on, nor swallow the cancellation."""
    if "hang" not in harness.troubles:
        return
    async with _started(harness.make_sink()) as sink:
        await harness.trouble("hang")
        task = asyncio.ensure_future(sink.send(_make_batch(_records(harness, [1]), 1)))
        await asyncio.wait([task], timeout=0.3)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        await give_up(task)
        assert done, "send() went on for more than 5 s after it was cancelled"
        assert task.cancelled(), "send() swallowed its cancellation"
        await harness.trouble(None)


def _make_batch(records: Sequence[Record], number: int) -> Batch:
    return Batch(
        records=records,
        start=Position(number - 1, 0),
        end=Position(number, 0),
        spool_id="00000000-0000-0000-0000-000000000000",
        pipeline="contract",
        sink="checked",
    )


async def check_memory_does_not_grow(harness: SinkHarness, folder: Path) -> None:
    """The same small batch repeatedly keeps nothing in memory."""
    async with _started(harness.make_sink()) as sink:
        records = _records(harness, range(20))
        leaked = await grows(lambda: within(sink.send(_make_batch(records, 1)), "send()"))
    assert leaked < LEAKED_BYTES, f"send() leaks: {leaked / 2**20:.0f} MiB more after 8 batches of 20 records"


async def check_idle_is_idle(harness: SinkHarness, folder: Path) -> None:
    """After a batch, nothing is asked of the sink for a second: neither it nor a thread of its own computes then."""
    async with _started(harness.make_sink()) as sink:
        await within(sink.send(_make_batch(_records(harness, range(20)), 1)), "send()")
        await check_idle(sink, "the sink")


async def check_files_are_named(harness: SinkHarness, folder: Path) -> None:
    """A file that the sink writes outside of its own folder is one that `occupies` names."""
    with written_files() as written:
        async with _started(harness.make_sink()) as sink:
            await within(sink.send(_make_batch(_records(harness, range(20)), 1)), "send()")
    named = {os.path.abspath(path) for path in type(sink).occupies(sink.settings)}
    own = os.path.abspath(sink.context.data_dir)
    shared = [path for path in sorted(written - named) if os.path.isfile(path) and not path.startswith(own + os.sep)]
    assert not shared, (
        f"the sink writes {shared[0]}, which occupies() does not name; two sinks on one file destroy it: name it in "
        "occupies(settings), or write below context.data_dir"
    )


SinkCheck = Callable[[SinkHarness, Path], Awaitable[None]]


def _watched(check: SinkCheck) -> SinkCheck:
    """A check that ends with a message where the sink hangs or blocks the event loop."""

    @functools.wraps(check)
    async def watched(harness: SinkHarness, folder: Path) -> None:
        module = type(harness.make_sink()).__module__
        await unblocked(lambda: _awaited(check(harness, folder)), check.__name__, module)

    return watched


async def _awaited(asked: Awaitable[None]) -> None:
    await asked


SINK_CHECKS: tuple[SinkCheck, ...] = (
    _watched(check_everything_arrives_once),
    _watched(check_odd_values_lose_no_neighbour),
    _watched(check_no_trouble_loses_anything),
    _watched(check_stopping_in_the_middle_loses_nothing),
    _watched(check_a_full_spool_keeps_what_it_took),
    _watched(check_a_batch_sent_again_changes_nothing),
    _watched(check_answers_make_sense),
    _watched(check_a_sink_that_was_never_started_stops),
    _watched(check_cancelling_is_obeyed),
    _watched(check_memory_does_not_grow),
    _watched(check_idle_is_idle),
    _watched(check_files_are_named),
)
