"""Contract checks for collectors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from ..model.records import Record, decode_envelope, encode_envelope
from ..pipeline.collecting import collect_once
from ..plugin_api.components import Collector, Partial
from .watching import LEAKED_BYTES, check_idle, give_up, grows, started, unblocked, within

_CANCEL_SECONDS = 5.0


async def check_collector(collector: Collector, *, failing: Collector | None = None) -> None:
    """Collect twice, and once again cancelled in the middle; `failing` is one whose other side is broken.

    What is collected must survive the envelope; a failure must raise, because an empty answer means "nothing there".
    """
    await unblocked(lambda: _check_running(collector), f"collector {collector.name}", type(collector).__module__)
    assert collector.interval_seconds > 0
    assert collector.timeout_seconds > 0
    if failing is not None:
        await _check_failing(failing)


async def _collect_as_host(collector: Collector) -> Sequence[Record]:
    """One call as the host makes it: in a process of its own if the collector is isolated."""
    if not collector.isolated:
        answer = await collector.collect()
        if not isinstance(answer, Partial):
            return answer
        for reason, count in answer.rejected.items():
            assert len(reason) <= 64, f"reasons are labels of a metric and must be few and short, not {reason[:80]!r}"
            assert count >= 0, f"collect() rejected {count} items for {reason!r}"
        return answer.records
    found = await collect_once(collector, collector.timeout_seconds)
    assert not found.rejected, f"a record does not survive the envelope: {found.rejected[0]}"
    return found.records


async def _check_running(collector: Collector) -> None:
    if collector.isolated:
        check_records(
            await within(_collect_as_host(collector), "collect()", collector.timeout_seconds + _CANCEL_SECONDS)
        )
        await check_cancelling(_collect_as_host(collector))
        return
    await started(collector)
    try:
        for _ in range(2):
            check_records(await within(_collect_as_host(collector), "collect()", collector.timeout_seconds))
        await check_cancelling(_collect_as_host(collector))
        check_records(await within(_collect_as_host(collector), "collect()", collector.timeout_seconds))
        await check_idle(collector, "the collector")
        leaked = await grows(lambda: within(_collect_as_host(collector), "collect()", collector.timeout_seconds))
        assert leaked < LEAKED_BYTES, f"collect() leaks: {leaked / 2**20:.0f} MiB more after 8 calls"
    finally:
        await within(collector.stop(), "stop()")


def check_records(records: object, what: str = "collect()") -> None:
    """Fail unless this is a list of records that survive the envelope."""
    assert isinstance(records, (list, tuple)), f"{what} must answer a list of records, not {type(records).__name__}"
    for record in records:
        assert isinstance(record, Record), f"{what} answered a {type(record).__name__} among its records"
    decoded = decode_envelope(encode_envelope(records))
    assert not decoded.rejected, f"a record does not survive the envelope: {decoded.rejected[0][1]}"
    assert len(decoded.records) == len(records)


async def check_cancelling(call: Coroutine[Any, Any, object], what: str = "collect()") -> None:
    """Fail unless a call ends soon after it is cancelled."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    task.cancel()
    started = time.monotonic()
    done, _ = await asyncio.wait([task], timeout=_CANCEL_SECONDS)
    is_obedient = await give_up(task) if not done else True
    assert is_obedient, f"{what} swallowed its cancellation"
    assert done, f"{what} went on for more than {_CANCEL_SECONDS:g} s after it was cancelled"
    assert task.cancelled() or task.exception() is None, f"cancelled, {what} raised {task.exception()!r}"
    assert time.monotonic() - started < _CANCEL_SECONDS


async def _check_failing(collector: Collector) -> None:
    if collector.isolated:
        outcome: object
        (outcome,) = await asyncio.gather(_collect_as_host(collector), return_exceptions=True)
    else:
        await within(collector.start(), "start()")
        (outcome,) = await asyncio.gather(within(collector.collect(), "collect()"), return_exceptions=True)
        await within(collector.stop(), "stop()")
    if isinstance(outcome, Partial) and outcome.problem:
        return
    assert isinstance(outcome, BaseException), f"the other side is broken, but collect() answered {outcome!r}"
    assert str(outcome), f"{type(outcome).__name__} does not say what failed"
