"""Contract checks for analyzers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..base.errors import LensError
from ..plugin_api.analyzer import Analyzer
from .collectors import check_cancelling, check_records
from .memory_store import MemoryStore
from .watching import started, unblocked, within


class _Broken(MemoryStore):
    """A store that answers nothing."""

    def __getattribute__(self, name: str) -> object:
        if name in ("workload", "workloads", "events", "evidence", "metric_points", "iteration_times", "version"):
            raise LensError("the store is away")
        return super().__getattribute__(name)


async def check_analyzer(analyzer: Analyzer, store: MemoryStore, *, expects: int = 0) -> None:
    """Let an analyzer look at what a store holds, at nothing, and at what it has seen already, and cancel it.

    `expects` is the number of records that the first look must find at least. Its records must survive the envelope; a
    workload that nobody knows is no error; a second look at the same state must not find more than the first.
    """
    await unblocked(lambda: _check_running(analyzer, store, expects), analyzer.name, type(analyzer).__module__)
    assert analyzer.interval_seconds > 0
    assert analyzer.timeout_seconds > 0


async def _check_running(analyzer: Analyzer, store: MemoryStore, expects: int) -> None:
    analyzer.store = store
    await started(analyzer)
    try:
        changed, _ = await store.changed_workloads("")
        first = await _analyze(analyzer, changed)
        assert len(first) >= expects, f"analyze() found {len(first)} records, not {expects} or more"
        await analyzer.stored()
        again = await _analyze(analyzer, changed)
        assert len(again) <= max(len(first), expects), "a second look at the same state found more than the first"
        await analyzer.stored()
        await _analyze(analyzer, [])
        await _analyze(analyzer, ["nobody-knows-this"])
        await check_cancelling(analyzer.analyze(changed), "analyze()")
        for route in analyzer.routes():
            assert route.role in ("read", "admin"), f"{route.paths}: an analyzer's routes are for role read or admin"
        analyzer.store = _Broken(store.context.data_dir)
        (outcome,) = await asyncio.gather(analyzer.analyze(["any"]), return_exceptions=True)
        assert isinstance(outcome, (LensError, list, tuple)), f"with a store that is away it raised {outcome!r}"
    finally:
        analyzer.store = store
        await within(analyzer.stop(), "stop()")


async def _analyze(analyzer: Analyzer, changed: Sequence[str]) -> Sequence[object]:
    found = await within(analyzer.analyze(changed), "analyze()", analyzer.timeout_seconds)
    check_records(found, "analyze()")
    return found
