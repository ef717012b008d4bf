"""Errors of devices as findings of the jobs that ran on their nodes, each with what it cost."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import EventRow, Store

from ...device_errors import DEVICE_ERROR
from ..goodput.device_causes import SeenError
from ..goodput.facts import Interruption
from ..goodput.ledger import ledger_of
from ..goodput.node_errors import errors_in, errors_on, nodes_of_attempt, read_node_errors
from ..goodput.store_facts import facts_of
from .finding import Finding
from .job import Attempt

# Two sources may tell of one error, and a counter is read each so often.
_SAME_SECONDS = 120.0
# The kernel's log may come that late, and an error may be seen shortly before the first row.
_AROUND_SECONDS = 120.0
_MOST_FINDINGS = 50


async def find_device_errors(
    store: Store, uid: str, attempts: Sequence[Attempt], events: Sequence[EventRow]
) -> list[Finding]:
    """The errors of devices in the time of the newest attempts: of their nodes, and those that the job's events tell.

    The last event of a job that hung may come long after its last row.
    """
    lives = [attempt.life for attempt in attempts]
    begin = lives[0].begins - _AROUND_SECONDS
    end = max([lives[-1].ends, *(event.timestamp / 1000 for event in events[-1:])]) + _AROUND_SECONDS
    told = frozenset(event.node for event in events if event.node)
    named = told.union(*(life.nodes for life in lives))
    nodes = nodes_of_attempt(named, await store.pods(uid), begin, end)
    errors = await read_node_errors(store, nodes)
    of_nodes = [seen for seen in errors_on(errors, nodes) if begin <= seen.time <= end]
    own = [seen for seen in errors_in(events) if begin <= seen.time <= end]
    if not of_nodes and not own:
        return []
    # Rare enough for a ledger of their own.
    runs = await facts_of(store, uid)
    interruptions = [found for facts in runs for found in ledger_of(facts).interruptions]
    iteration = lives[-1].stream.last_iteration or 0
    return [
        _finding(seen, iteration, interruptions, is_told=any(_is_same(one, seen) for one in own))
        for seen in _first_of_same([*of_nodes, *own])
    ]


def _is_same(one: SeenError, other: SeenError) -> bool:
    """Whether two say the same of one node within two minutes."""
    said = (one.error.error, one.node) == (other.error.error, other.node)
    return said and abs(one.time - other.time) <= _SAME_SECONDS


def _first_of_same(errors: Sequence[SeenError]) -> list[SeenError]:
    """The first of those that say the same."""
    found: list[SeenError] = []
    for seen in sorted(errors, key=lambda one: one.time):
        if not any(_is_same(one, seen) for one in found):
            found.append(seen)
    return found[:_MOST_FINDINGS]


def _finding(seen: SeenError, iteration: int, interruptions: Sequence[Interruption], *, is_told: bool) -> Finding:
    error = seen.error
    caused = [one for one in interruptions if one.cause == error.error and (one.node or "") in ("", seen.node)]
    nearest = min(caused, key=lambda one: abs(one.time - seen.time), default=None)
    details: dict[str, object] = {
        "error": error.error,
        "kind": error.kind,
        "node": seen.node,
        "device": error.device,
        "stopped_job": nearest is not None,
        "cost_seconds": nearest.seconds if nearest is not None else 0.0,
        **error.figures,
    }
    if error.xid is not None:
        details["xid"] = error.xid
    if seen.rank is not None:
        details["rank"] = seen.rank
    if nearest is not None and nearest.gpu_hours is not None:
        details["cost_gpu_hours"] = nearest.gpu_hours
    return Finding(
        type=DEVICE_ERROR, iteration=iteration, time=seen.time, rule=error.rule, details=details, is_told=is_told
    )
