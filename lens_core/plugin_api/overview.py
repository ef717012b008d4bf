"""The list of workloads as people need it: what has failed or stalled first, then what was seen last.

A store that can answer it in one question has a method `overview` (`AnswersOverview`); any other is asked for its
list, in its own order, and for the newest events of what is on the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from ..model.event_types import FAILURE_EVENTS, STATE_EVENTS
from ..model.queries import EventRow, RunSummary, WorkloadSummary
from .store import Store

# Older failures have their place by when they were seen, so that the list does not begin with old news for ever.
ATTENTION_DAYS = 3
# Rows that come so long after a failure or a stall are a job that goes on.
GOES_ON_MS = 5_000
# Without an event that says how it ended: this long without data is silence; for a job whose rows come minutes apart,
# so many times as long as they usually do.
SILENT_AFTER_MS = 60_000
SILENT_AFTER_ROWS = 3

State = Literal["failed", "stalled", "running", "ended", "silent"]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list; `event` is the newest that says how it is doing. Times in ms.

    `last_row` is when the newest row was logged; `last_seen` of the summary counts events and evidence too.
    `row_ms` is how far apart the rows of the run are that logged last, on the average.
    """

    summary: WorkloadSummary
    target_iteration: int | None = None
    event: str = ""
    event_at: int | None = None
    event_iteration: int | None = None
    last_row: int | None = None
    row_ms: int | None = None


class OverviewPage(msgspec.Struct, frozen=True):
    """A page of the list; `next_cursor` is '' on the last. `total` is None where counting is not possible."""

    workloads: list[Overview]
    next_cursor: str = ""
    total: int | None = None


@runtime_checkable
class AnswersOverview(Protocol):
    """A store that gives the list in one question."""

    async def overview(self, *, search: str, limit: int, cursor: str) -> OverviewPage:
        """Those that need attention first, then those seen last."""
        ...


@runtime_checkable
class AnswersOverviewsOf(Protocol):
    """A store that gives the lines of a page in one question."""

    async def overviews_of(self, summaries: Sequence[WorkloadSummary]) -> list[Overview]:
        """Return the lines of these workloads, in any order."""
        ...


def state_of(line: Overview, now_ms: int) -> State:
    """The state of a workload."""
    last_row = line.last_row or 0
    goes_on = line.event_at is not None and last_row > line.event_at + GOES_ON_MS
    if line.event in FAILURE_EVENTS and not goes_on:
        return "failed"
    if line.event == "stalled" and not goes_on:
        return "stalled"
    if line.event == "training_ended" and not goes_on:
        return "ended"
    if now_ms - last_row > max(SILENT_AFTER_MS, SILENT_AFTER_ROWS * (line.row_ms or 0)):
        finished = line.target_iteration is not None and (line.summary.last_iteration or 0) >= line.target_iteration
        return "ended" if finished else "silent"
    return "running"


async def overview(store: Store, *, search: str, limit: int, cursor: str) -> OverviewPage:
    """A page of the list from any store."""
    if isinstance(store, AnswersOverview):
        return await store.overview(search=search, limit=limit, cursor=cursor)
    page = await store.workloads(search=search, limit=limit, cursor=cursor)
    lines = await asyncio.gather(*(_workload_overview(store, summary) for summary in page.workloads))
    return OverviewPage(list(lines), page.next_cursor)


async def states_of(store: Store, summaries: Sequence[WorkloadSummary], now_ms: int) -> dict[str, State]:
    """Return the states of workloads of any store, by their uids."""
    if isinstance(store, AnswersOverviewsOf):
        lines = await store.overviews_of(summaries)
    else:
        lines = await asyncio.gather(*(_workload_overview(store, summary) for summary in summaries))
    return {line.summary.workload_uid: state_of(line, now_ms) for line in lines}


async def _workload_overview(store: Store, summary: WorkloadSummary) -> Overview:
    events = await store.events(summary.workload_uid, limit=50)
    detail = await store.workload(summary.workload_uid)
    return line_of(summary, detail.runs if detail else [], events)


def line_of(summary: WorkloadSummary, runs: list[RunSummary], events: list[EventRow]) -> Overview:
    """A line from what the store says about one workload; events newest first."""
    targets = [run.target_iteration for run in runs if run.target_iteration is not None]
    newest = next((event for event in events if event.type in STATE_EVENTS), None)
    last = max(runs, key=lambda run: run.last_seen, default=None)
    return Overview(
        summary=summary,
        target_iteration=max(targets, default=None),
        event=newest.type if newest else "",
        event_at=newest.timestamp if newest else None,
        event_iteration=newest.iteration if newest else None,
        last_row=last.last_seen if last else None,
        row_ms=(last.last_seen - last.first_seen) // (last.rows - 1) if last and last.rows > 1 else None,
    )
