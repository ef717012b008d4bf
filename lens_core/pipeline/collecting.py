"""Running a collector, or an analyzer as one: on its interval with jitter, one run at a time, its failures its own."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..base.errors import LensError
from ..base.exits import without_exit
from ..model.records import Record, decode_envelope, encode_envelope
from ..plugin_api.components import Collector, Partial
from .ingest_gate import IngestGate
from .isolation import run_isolated

logger = logging.getLogger("lens.collecting")

INVALID = "invalid"


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call of a collector: its valid records, and the reasons against the others.

    `counted` are items that the collector itself rejected, by reason; `problem` is what it could not get.
    """

    records: Sequence[Record]
    rejected: Sequence[str] = ()
    counted: Mapping[str, int] = {}
    problem: str = ""


# A call that was cancelled may clean up for so long.
OBEY_SECONDS = 5.0
_Answer = Sequence[Record] | Partial
_left_behind: weakref.WeakKeyDictionary[Collector, asyncio.Task[_Answer]] = weakref.WeakKeyDictionary()
_Collecting = Coroutine[Any, Any, _Answer]
Measure = Callable[[_Collecting], _Collecting]


def _unmeasured(asked: _Collecting) -> _Collecting:
    return asked


class Take(Protocol):
    """A callback for the records, called before the collector is told that they are stored."""

    async def __call__(self, found: Collected) -> None:
        """Raises when they could not be taken."""
        ...


async def collect_once(collector: Collector, timeout_seconds: float, measure: Measure = _unmeasured) -> Collected:
    """One call, in a process of its own if the collector is isolated. Raises what went wrong, in words."""
    if collector.isolated:
        partial, rejected = await run_isolated(collector, timeout_seconds)
        return Collected(records=partial.records, rejected=rejected, counted=partial.rejected, problem=partial.problem)
    answer = await _call_within(collector, timeout_seconds, measure)
    if not isinstance(answer, Partial):
        return validate(answer)
    found = validate(answer.records)
    return msgspec.structs.replace(found, counted=dict(answer.rejected), problem=answer.problem)


async def _call_within(collector: Collector, timeout_seconds: float, measure: Measure) -> Sequence[Record] | Partial:
    """One call within its time. Raises LensError for a collector that ignores that its time is up.

    Such a call is left behind; until it ends no other one is begun.
    """
    if (still := _left_behind.get(collector)) is not None and not still.done():
        raise LensError("its last call ignores its cancellation and still goes on; it is not called again meanwhile")
    task = asyncio.ensure_future(measure(_call(collector)))
    try:
        await asyncio.wait({task}, timeout=timeout_seconds)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            try:
                await asyncio.wait({task}, timeout=OBEY_SECONDS)
            finally:
                if not task.done():
                    collector.context.logger.error("collect ignores its cancellation; continuing without it.")
    if not task.done():
        _left_behind[collector] = task
        raise LensError(
            f"took longer than {timeout_seconds:g} s and ignores its cancellation: it goes on {OBEY_SECONDS:g} s later"
        )
    if not task.cancelled():
        return task.result()
    raise TimeoutError


async def _call(collector: Collector) -> Sequence[Record] | Partial:
    return await without_exit(collector.collect())


async def collect_all(
    collector: Collector,
    timeout_seconds: float,
    take: Take,
    *,
    remember: bool = True,
    measure: Measure = _unmeasured,
) -> None:
    """One run: calls for as long as the collector has more. Raises what went wrong, after what was found is stored.

    Without `remember` the collector is not told that anything is stored, and is called only once.
    """
    while True:
        found = await collect_once(collector, timeout_seconds, measure)
        await take(found)
        if remember:
            await collector.stored()
        if found.problem:
            raise LensError(found.problem)
        if not remember or collector.isolated or not collector.more:
            return


def validate(records: Sequence[Record]) -> Collected:
    """Records that survive the envelope; one that does not loses no other."""
    try:
        decoded = decode_envelope(encode_envelope(records))
    except Exception:  # noqa: BLE001 - whatever a record holds that cannot be encoded; found out one by one
        return _check_singly(records)
    if not decoded.rejected:
        return Collected(records=records)
    bad = dict(decoded.rejected)
    good = [record for index, record in enumerate(records) if index not in bad]
    return Collected(records=good, rejected=list(bad.values()))


def _check_singly(records: Sequence[Record]) -> Collected:
    good: list[Record] = []
    rejected: list[str] = []
    for record in records:
        try:
            if not isinstance(record, Record):
                raise TypeError(f"a {type(record).__name__} is no record")
            refused = [reason for _, reason in decode_envelope(encode_envelope([record])).rejected]
            (rejected.extend(refused) if refused else good.append(record))
        except Exception as error:  # noqa: BLE001 - it is counted and said as rejected
            rejected.append(f"{type(error).__name__}: {error}")
    return Collected(records=good, rejected=rejected)


def reason_of(error: BaseException, timeout_seconds: float) -> str:
    """Why a run failed, in one line."""
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return f"took longer than {timeout_seconds:g} s"
    if isinstance(error, LensError):
        return str(error)
    return f"{type(error).__name__}: {error}"


class CollectorRunner:
    """Calls one collector for as long as the daemon runs and submits its records to its ingest gate."""

    def __init__(
        self,
        collector: Collector,
        gate: IngestGate,
        *,
        interval_seconds: float,
        timeout_seconds: float,
        start: Callable[[], Awaitable[None]] | None = None,
        measure: Measure = _unmeasured,
        plugin_name: str | None = None,
    ) -> None:
        self.collector = collector
        self.plugin_name = collector.name if plugin_name is None else plugin_name
        self._measure = measure
        self._start = start
        self.name = collector.context.name
        self.gate = gate
        self.last_error = ""
        self.last_error_at: float | None = None
        self.last_success_at: float | None = None
        self.last_duration_seconds: float | None = None
        self.records = 0
        self.errors = 0
        self._interval_seconds = interval_seconds
        self._timeout_seconds = timeout_seconds
        self._running = asyncio.Lock()
        metrics = collector.context.metrics
        self._up = metrics.collector_up.labels(self.name)
        self._duration = metrics.collector_duration.labels(self.name)
        self._last_success = metrics.collector_last_success.labels(self.name)
        self._runs = metrics.collector_runs.labels(self.name)
        self._errors = metrics.collector_errors.labels(self.name)
        self._records = metrics.collector_records.labels(self.name)

    async def collect_repeatedly(self) -> None:
        """Collect until cancelled; the first time as soon as it is started, then with a tenth of jitter."""
        if self._start is not None:
            await self._start()
        while True:
            await self.collect_once()
            await asyncio.sleep(self._interval_seconds * random.uniform(0.9, 1.1))

    async def collect_once(self) -> bool:
        """One run, never two at a time; False when it failed."""
        async with self._running:
            started = time.monotonic()
            self._runs.inc()
            try:
                await collect_all(self.collector, self._timeout_seconds, self._submit, measure=self._measure)
            except Exception as error:  # noqa: BLE001 - a failing collector never touches another
                self._record_failure(error)
            else:
                self._succeeded()
            self.last_duration_seconds = time.monotonic() - started
            self._duration.set(self.last_duration_seconds)
            return not self.last_error

    async def _submit(self, found: Collected) -> None:
        rejected = {reason: count for reason, count in found.counted.items() if count > 0}
        if found.rejected:
            rejected[INVALID] = rejected.get(INVALID, 0) + len(found.rejected)
        if found.records or rejected:
            received = len(found.records) + sum(rejected.values())
            await self.gate.submit(found.records, received=received, rejected=rejected)
        if found.rejected:
            logger.warning("Records refused. collector=%s first=%s", self.name, found.rejected[0])
        self.records += len(found.records)
        self._records.inc(len(found.records))

    def _succeeded(self) -> None:
        self.last_error = ""
        self.last_success_at = time.time()
        self._up.set(1)
        self._last_success.set(self.last_success_at)

    def _record_failure(self, error: Exception) -> None:
        reason = reason_of(error, self._timeout_seconds) or type(error).__name__
        self.errors += 1
        self._errors.inc()
        self._up.set(0)
        if reason != self.last_error:
            # The first time with its traceback, unless somebody raised it on purpose.
            surprise = not isinstance(error, (LensError, TimeoutError, asyncio.TimeoutError))
            logger.warning("Collector failed. collector=%s error=%s", self.name, reason, exc_info=surprise)
        self.last_error, self.last_error_at = reason, time.time()
