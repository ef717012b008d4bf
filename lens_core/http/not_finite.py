"""Finds since when a loss is not finite: at which iteration and time, on which ranks first, and its last finite value.

A curve may have millions of points. They are asked for in parts first, then only those between the last part with a
finite value and the next one.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..model.queries import EventRow, MetricPoint, PointColumns, PointQuery, RunSummary
from ..plugin_api.store import Store
from .over_ranks import closing
from .point_text import special_name

# The type of events that tell of such a loss.
LOSS_EVENT = "loss_not_finite"
_PARTS = 200
# From so many ranks on only those are looked at whose newest value is not finite, and at most so many.
_MOST_RANKS = 1024
_NO_RANK = -1


class NotFinite(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a loss is not finite; times in ms.

    `value` is the first such value as a text, `ranks` are those on which it came first, `is_everywhere` says that
    these are all the ranks that log the loss. `last_finite` is None where no value was finite.
    """

    value: str
    since: int
    since_iteration: int
    ranks: tuple[int, ...] = ()
    is_everywhere: bool = False
    node: str = ""
    last_finite: float | None = None
    last_finite_iteration: int | None = None


class _Part(NamedTuple):
    """Points of a rank that follow each other; iteration and time of the last of them."""

    rank: int
    iteration: int
    time: int
    value: float
    has_finite: bool


class _Gap:
    """The times between which the loss of a rank stopped being finite."""

    def __init__(self) -> None:
        self.begin: int | None = None
        self.end: int | None = None
        self._last: _Part | None = None

    def append_part(self, part: _Part) -> None:
        """Go on with the next part of the rank."""
        if part.has_finite:
            self.begin, self.end = part.time if self._last is None else self._last.time, None
        elif self.end is None:
            self.end = part.time
            self.begin = part.time if self.begin is None else self.begin
        self._last = part


class _Change:
    """The last finite point of a rank, and the first one after it that is not."""

    def __init__(self) -> None:
        self.finite: _Part | None = None
        self.first: _Part | None = None

    def append_point(self, point: _Part) -> None:
        """Go on with the next point of the rank."""
        if point.has_finite:
            self.finite, self.first = point, None
        elif self.first is None:
            self.first = point


async def find_not_finite(
    store: Store, uid: str, newest: MetricPoint, runs: Sequence[RunSummary], ranks: Collection[int]
) -> NotFinite | None:
    """Find since when a loss is not finite; None where it is finite on all ranks.

    `newest` is its newest point on the lowest rank, `ranks` are those whose newest value is known to be not finite.
    """
    if math.isfinite(newest.value) and not ranks:
        return None
    if any(run.data_source == newest.data_source and run.first_seen > newest.timestamp for run in runs):
        return None  # another attempt goes on, which has not logged its loss yet
    of_attempt = [
        run
        for run in runs
        if (run.data_source, run.run_id, run.attempt) == (newest.data_source, newest.run_id, newest.attempt)
    ]
    query = PointQuery(
        workload_uid=uid,
        metrics=(newest.metric_name,),
        data_source=newest.data_source,
        run_id=newest.run_id,
        attempt=newest.attempt,
        over_parts=_PARTS,
    )
    known = {_NO_RANK if run.rank is None else run.rank for run in of_attempt}
    if len(known) == 1:
        (only,) = known
    elif len(known) <= _MOST_RANKS and "fields" in store.point_options:
        query, only = msgspec.structs.replace(query, fields=("rank",)), _NO_RANK
    else:
        only = min(ranks, default=min((rank for rank in known if rank >= 0), default=_NO_RANK))
        query = msgspec.structs.replace(query, rank=only)
    gaps: dict[int, _Gap] = {}
    async for part in _read_parts(store, query, only):
        gaps.setdefault(part.rank, _Gap()).append_part(part)
    found = {rank: gap for rank, gap in gaps.items() if gap.begin is not None and gap.end is not None}
    if not found:
        return None
    end = min(gap.end for gap in found.values() if gap.end is not None)
    begin = min(gap.begin for gap in found.values() if gap.begin is not None)
    narrow = msgspec.structs.replace(query, over_parts=None, start_ms=min(begin, end), end_ms=max(begin, end))
    found_changes = _describe(await _rank_changes(store, narrow, only, found), of_attempt, len(gaps))
    if found_changes is None:  # times that go back: the window is another one than that of the iterations
        whole = msgspec.structs.replace(query, over_parts=None)
        found_changes = _describe(await _rank_changes(store, whole, only, found), of_attempt, len(gaps))
    return found_changes


def with_place(found: NotFinite, events: Sequence[EventRow]) -> NotFinite:
    """The same with the rank and node of an event that tells of it, where the rows name no rank."""
    if found.ranks:
        return found
    told = [event for event in events if event.type == LOSS_EVENT and event.iteration == found.since_iteration]
    ranks = tuple(sorted({event.rank for event in told if event.rank is not None and event.rank >= 0}))
    nodes = {event.node for event in told if event.node}
    return msgspec.structs.replace(found, ranks=ranks, node=nodes.pop() if len(nodes) == 1 else found.node)


async def _rank_changes(store: Store, query: PointQuery, only: int, ranks: Collection[int]) -> dict[int, _Change]:
    changes = {rank: _Change() for rank in ranks}
    async for point in _read_parts(store, query, only):
        if point.rank in changes:
            changes[point.rank].append_point(point)
    return changes


def _describe(changes: Mapping[int, _Change], runs: Sequence[RunSummary], rank_count: int) -> NotFinite | None:
    """The earliest of the changes; of those at one iteration all ranks."""
    known = [(change.first, change.finite) for _, change in sorted(changes.items()) if change.first is not None]
    if not known:
        return None
    iteration = min(first.iteration for first, _ in known)
    earliest = [pair for pair in known if pair[0].iteration == iteration]
    first, finite = earliest[0]
    ranks = tuple(one.rank for one, _ in earliest if one.rank >= 0)
    nodes = {run.node for run in runs if run.rank in ranks}
    return NotFinite(
        value=special_name(first.value),
        since=min(one.time for one, _ in earliest),
        since_iteration=iteration,
        ranks=ranks,
        is_everywhere=1 < rank_count == len(earliest),
        node=nodes.pop() if len(nodes) == 1 else "",
        last_finite=None if finite is None else finite.value,
        last_finite_iteration=None if finite is None else finite.iteration,
    )


async def _read_parts(store: Store, query: PointQuery, only: int) -> AsyncIterator[_Part]:
    """The points of a query, or its parts where the store answers these; of rank `only` where no rank is told."""
    pieces = store.metric_columns(query)
    async with closing(pieces):
        async for piece in pieces:
            for part in _parts_in(piece, only):
                yield part


def _parts_in(piece: PointColumns, only: int) -> list[_Part]:
    extras: dict[str, Sequence[Any]] = piece.extras
    has_finite = [math.isfinite(value) for value in piece.values]
    if "steps" in extras:
        has_finite = [bad < many for bad, many in zip(extras["not_finite"], extras["count"], strict=True)]
    ranks = [_NO_RANK if rank is None else rank for rank in extras.get("rank", ())] or [only] * len(piece)
    return [*map(_Part, ranks, piece.iterations, piece.timestamps, piece.values, has_finite)]
