"""The analyzer over a store in memory, and through the contract checks."""

from __future__ import annotations

from pathlib import Path

from lens_budget_analyzer import Budget, BudgetSettings

from lens_core import Event, Measurement, Origin, StepMetrics
from lens_core.testing import MemoryStore, check_analyzer, make_context

HOUR = 3600.0


def row(uid: str, step: int, at: float) -> StepMetrics:
    origin = Origin(workload_uid=uid)
    return StepMetrics(origin=origin, data_source="log", row_step=step, values={"loss": 1.0}, event_time=1e9 + at)


def make(folder: Path, store: MemoryStore) -> Budget:
    analyzer = Budget(BudgetSettings(hours=10), make_context("budget", folder))
    analyzer.store = store
    return analyzer


async def test_the_analyzer_keeps_the_contract(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, [row("job", 1, 0), row("job", 2, 20 * HOUR)])
    await check_analyzer(make(tmp_path, store), store, expects=2)


async def test_a_job_over_its_budget_is_reported_once(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, [row("long", 1, 0), row("long", 2, 20 * HOUR), row("short", 1, 0)])
    analyzer = make(tmp_path, store)
    await analyzer.start()
    found = await analyzer.analyze(["long", "short"])
    assert [one.origin.workload_uid for one in found if isinstance(one, Event)] == ["long"]
    assert [one.value for one in found if isinstance(one, Measurement)] == [20.0, 0.0]
    again = await analyzer.analyze(["long"])  # the first answer was not stored
    assert [one for one in again if isinstance(one, Event)]
    await analyzer.stored()
    assert not [one for one in await analyzer.analyze(["long"]) if isinstance(one, Event)]
    later = make(tmp_path, store)
    await later.start()
    assert not [one for one in await later.analyze(["long"]) if isinstance(one, Event)]
