"""Stacks of the local ranks as records of the pipeline."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from lens_core import Collector, Context, Record, hookimpl

from .diagnosis.base import AgentOptions, DataCollector
from .diagnosis.plugin import DiagnosisCollector, DiagnosisSettings
from .diagnosis.processes import Owner, find_ranks
from .diagnosis.readers import INTERVAL_SECONDS, StackCollector

_LOOK_FOR_JOBS_EVERY = 8


class StacksSettings(DiagnosisSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the stacks collector."""

    pids: Annotated[tuple[int, ...], Meta(description="processes to look at; those with a RANK if none are given")] = ()
    local_world_size: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="look at no more ranks than these")
    ] = None
    may_pause: Annotated[
        bool, Meta(description="stop a process for some milliseconds where its stack cannot be read otherwise")
    ] = True
    all_ranks: Annotated[
        bool, Meta(description="look at all ranks at once every other time, so that one for which others wait is found")
    ] = False


class Stacks(DiagnosisCollector):
    """Looks at what the local ranks are doing, with py-spy: one while it moves, all while it stands still."""

    name = "stacks"
    interval_seconds = INTERVAL_SECONDS
    Settings = StacksSettings

    def __init__(self, settings: StacksSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._jobs: dict[Owner, StackCollector] = {}
        self._runs = 0

    @classmethod
    def data_collector(cls, options: AgentOptions) -> DataCollector:
        """The agent's own."""
        return StackCollector(options.local_world_size)

    def make_collector(self) -> DataCollector:
        """The collector for processes that are named."""
        settings = self.settings
        return StackCollector(
            settings.local_world_size, settings.pids, may_pause=settings.may_pause, all_ranks=settings.all_ranks
        )

    async def collect(self) -> Sequence[Record]:
        """One report for each job that runs here; jobs are told apart by the environment of their ranks."""
        if self.settings.pids or not self._collector.is_enabled():
            return await super().collect()
        return await asyncio.to_thread(self._collect_jobs)

    def _collect_jobs(self) -> list[Record]:
        if not self._jobs or self._runs % _LOOK_FOR_JOBS_EVERY == 0:
            self._find_jobs()
        self._runs += 1
        records: list[Record] = []
        for owner, collector in self._jobs.items():
            data = collector.collect_data()
            if data:
                records.append(self.make_diagnosis(collector.to_text(data), owner))
        return records

    def _find_jobs(self) -> None:
        found: dict[Owner, list[int]] = defaultdict(list)
        for rank in find_ranks(limit=self.settings.local_world_size):
            found[rank.owner].append(rank.pid)
        jobs: dict[Owner, StackCollector] = {}
        for owner, pids in found.items():
            collector = self._jobs.get(owner) or StackCollector(
                pids=pids, may_pause=self.settings.may_pause, all_ranks=self.settings.all_ranks
            )
            if collector.pids != pids:
                collector.set_pids(pids)
            jobs[owner] = collector
        self._jobs = jobs


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [Stacks]
