"""Reports jobs that have trained for longer than their budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import Analyzer, Context, Event, Measurement, Origin, Record, hookimpl, load_state, save_state


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the budget analyzer."""

    hours: Annotated[float, Meta(gt=0, description="a job that trains for longer is reported")] = 48.0


class Reported(msgspec.Struct):
    """The jobs that were reported."""

    uids: list[str] = []


class Budget(Analyzer):
    """An event `over_budget` for a job that trains for longer than its budget, and a gauge `budget.hours`."""

    name = "budget"
    api = ">=1.3,<2"
    Settings = BudgetSettings
    interval_seconds = 300.0

    def __init__(self, settings: BudgetSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._path = context.data_dir / "reported.json"
        self._reported: set[str] = set()
        self._new: set[str] = set()

    async def start(self) -> None:
        self._reported = set(load_state(self._path, Reported).uids)

    async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
        self._new = set()
        records: list[Record] = []
        for uid in changed:
            found = await self.store.workload(uid)
            if found is None or not found.summary.rows:
                continue
            seen = found.summary.last_seen / 1000
            hours = (found.summary.last_seen - found.summary.first_seen) / 3_600_000
            origin = Origin(workload_uid=uid)
            records.append(Measurement(origin=origin, name="budget.hours", value=hours, event_time=seen))
            if hours > self.settings.hours and uid not in self._reported:
                details = {"hours": hours, "budget_hours": self.settings.hours}
                records.append(Event(origin=origin, type="over_budget", event_time=seen, details=details))
                self._new.add(uid)
        return records

    async def stored(self) -> None:
        # Only now the event is safe; what was not stored is found again.
        if self._new:
            self._reported |= self._new
            save_state(self._path, Reported(sorted(self._reported)))


@hookimpl
def lens_analyzers() -> list[type[Analyzer]]:
    """The analyzers of this distribution."""
    return [Budget]
