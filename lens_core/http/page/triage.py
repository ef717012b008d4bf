"""The list of workloads as a triage: how many failed, hang, are slow, silent or not finite; filtered and sorted."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from ...base.errors import BadRequest
from ...model.event_types import SLOW_EVENTS, START_EVENTS
from ...model.queries import Progress
from ...plugin_api.overview import Overview, State, overview, state_of
from ...plugin_api.store import Store
from ..verdict import last_logged
from .grouping import SettingsCache, choices_of, read_group
from .summary import LOSS, THROUGHPUT, choose_name

MOST_LINES = 5000
# Of how many workloads, those seen last first, newest values and findings are looked up.
MOST_VALUES = 1000
MOST_FINDINGS = 200
_AT_ONCE = 500
_KEPT_SECONDS = 5.0
_KEPT_SEARCHES = 20
FLAGS = ("slow", "not_finite")
_OTHER_NAMES = {"hung": "stalled"}
_NEWEST_EVENTS = 50


class TriageLine(NamedTuple):
    """A line of the list with what it is sorted and filtered by; `flags` are among FLAGS."""

    overview: Overview
    state: State
    flags: frozenset[str]
    loss: float | None
    throughput: float | None

    @property
    def kinds(self) -> frozenset[str]:
        """The counters in which the line is counted."""
        return self.flags | {self.state}


class LineGroup(NamedTuple):
    """The lines of one value."""

    value: Any
    lines: list[TriageLine]

    def describe(self) -> dict[str, Any]:
        """The value, the number of lines, and how many of them are of each kind."""
        kinds = Counter(kind for line in self.lines for kind in line.kinds)
        return {"value": self.value, "count": len(self.lines), "counts": dict(sorted(kinds.items()))}


_Key = Callable[[TriageLine], Any]
# None comes last, in either order.
SORTS: Mapping[str, _Key] = {
    "name": lambda line: line.overview.summary.name.casefold(),
    "namespace": lambda line: line.overview.summary.namespace.casefold(),
    "state": lambda line: get_args(State).index(line.state),
    "seen": lambda line: last_logged(line.overview),
    "started": lambda line: line.overview.summary.first_seen,
    "iteration": lambda line: line.overview.summary.last_iteration,
    "progress": lambda line: _progress(line.overview),
    "loss": lambda line: line.loss,
    "throughput": lambda line: line.throughput,
    "rows": lambda line: line.overview.summary.rows,
}


class TriageQuery(NamedTuple):
    """The wanted kinds and namespaces (none: all), the order ('': the list's own), and the grouping ('': none)."""

    search: str = ""
    kinds: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    sort: str = ""
    is_descending: bool = False
    group: str = ""

    @staticmethod
    def of_parameters(
        search: str, kinds: str, namespaces: Sequence[str], sort: str, group: str, *, is_descending: bool
    ) -> TriageQuery:
        """Read names with commas between. Raises BadRequest."""
        names = {_OTHER_NAMES.get(name, name) for name in _split(kinds)}
        known = (*get_args(State), *FLAGS)
        if unknown := sorted(names - set(known)):
            raise BadRequest(f"state must be among {', '.join(known)}, not {unknown[0][:50]!r}")
        if sort and sort not in SORTS:
            raise BadRequest(f"sort must be one of {', '.join(SORTS)}, not {sort[:50]!r}")
        return TriageQuery(search, frozenset(names), frozenset(namespaces), sort, is_descending, read_group(group))

    @property
    def is_plain(self) -> bool:
        """Whether the store's own list is the answer."""
        return not (self.kinds or self.namespaces or self.sort or self.is_descending or self.group)


def _split(text: str) -> set[str]:
    return {name.strip().lower() for name in text.split(",") if name.strip()}


class Triage:
    """Looks through the list of a store; what it has found is kept for a few seconds."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, list[TriageLine]]] = OrderedDict()
        self._slow: OrderedDict[str, tuple[int, bool]] = OrderedDict()
        self._turn = asyncio.Lock()
        self._settings = SettingsCache()

    async def lines_of(self, store: Store, query: TriageQuery) -> list[TriageLine]:
        """The wanted lines in the wanted order, all of them."""
        chosen = [
            line
            for line in await self._all(store, query.search)
            if (not query.kinds or line.kinds & query.kinds)
            and (not query.namespaces or line.overview.summary.namespace in query.namespaces)
        ]
        if not query.sort:
            return chosen[::-1] if query.is_descending else chosen
        key = SORTS[query.sort]
        known = sorted((one for one in chosen if key(one) is not None), key=key, reverse=query.is_descending)
        return [*known, *(one for one in chosen if key(one) is None)]

    async def group_lines(self, store: Store, lines: Sequence[TriageLine], group: str) -> list[LineGroup]:
        """The lines by the value of `group`, in the order in which they come first; those without a value last."""
        if group in ("namespace", "state"):
            values = [line.state if group == "state" else line.overview.summary.namespace or None for line in lines]
        else:
            uids = [line.overview.summary.workload_uid for line in lines]
            settings = await self._settings.settings_of(store, uids[:MOST_VALUES])
            values = [settings[uid].value(group) if uid in settings else None for uid in uids]
        found: dict[bytes, LineGroup] = {}
        for value, line in zip(values, lines, strict=True):
            found.setdefault(msgspec.json.encode(value), LineGroup(value, [])).lines.append(line)
        return sorted(found.values(), key=lambda one: one.value is None)

    async def group_choices(self, store: Store, search: str) -> list[str]:
        """By which settings the workloads can be grouped, of those that were seen last."""
        uids = [line.overview.summary.workload_uid for line in await self._all(store, search)]
        settings = await self._settings.settings_of(store, uids[:MOST_VALUES])
        # A thousand workloads of hundreds of settings each take a good part of a second.
        return await asyncio.to_thread(choices_of, settings.values())

    async def counts(self, store: Store, search: str) -> dict[str, Any]:
        """Count the lines of each kind and of each namespace; `looked_at` says among how many."""
        lines = await self._all(store, search)
        kinds = Counter(kind for line in lines for kind in line.kinds)
        namespaces = Counter(line.overview.summary.namespace for line in lines)
        return {
            "counts": {kind: kinds[kind] for kind in (*get_args(State), *FLAGS)},
            "namespaces": [{"name": name, "count": count} for name, count in namespaces.most_common(100) if name],
            "looked_at": len(lines),
        }

    async def _all(self, store: Store, search: str) -> list[TriageLine]:
        async with self._turn:
            at, lines = self._kept.get(search, (-math.inf, []))
            if time.monotonic() - at > _KEPT_SECONDS:
                lines = await self._look_through(store, search)
                self._kept[search] = time.monotonic(), lines
                self._kept.move_to_end(search)
                while len(self._kept) > _KEPT_SEARCHES:
                    self._kept.popitem(last=False)
            return lines

    async def _look_through(self, store: Store, search: str) -> list[TriageLine]:
        found: list[Overview] = []
        cursor = ""
        while len(found) < MOST_LINES:
            page = await overview(store, search=search, limit=1000, cursor=cursor)
            found += page.workloads
            cursor = page.next_cursor
            if not cursor:
                break
        now_ms = round(time.time() * 1000)
        states = [state_of(line, now_ms) for line in found]
        newest = [line.summary.workload_uid for line in found[:MOST_VALUES]]
        values, not_finite = await _newest_values(store, newest), await store.not_finite_ranks(newest)
        running = [line for line, state in zip(found, states, strict=True) if state == "running"][:MOST_FINDINGS]
        slow = {line.summary.workload_uid for line in running if await self._is_slow(store, line)}
        return [
            _triage_line(line, state, values.get(uid, {}), not_finite.get(uid, ()), is_slow=uid in slow)
            for line, state in zip(found, states, strict=True)
            for uid in (line.summary.workload_uid,)
        ]

    async def _is_slow(self, store: Store, line: Overview) -> bool:
        uid, seen = line.summary.workload_uid, line.summary.last_seen
        kept = self._slow.get(uid)
        if kept is None or kept[0] != seen:
            events = await store.events(uid, limit=_NEWEST_EVENTS)
            telling = next((one.type for one in events if one.type in SLOW_EVENTS | START_EVENTS), "")
            self._slow[uid] = kept = (seen, telling in SLOW_EVENTS)
            self._slow.move_to_end(uid)
            while len(self._slow) > MOST_LINES:
                self._slow.popitem(last=False)
        return kept[1]


def _triage_line(
    line: Overview, state: State, values: Mapping[str, float], not_finite: Container[str], *, is_slow: bool
) -> TriageLine:
    """A line; `not_finite` are the metrics that are not finite on any rank."""
    loss, speed = choose_name([*values], LOSS), choose_name([*values], THROUGHPUT)
    newest = values[loss] if loss else None
    is_finite = newest is None or math.isfinite(newest)
    is_flagged = not is_finite or loss in not_finite
    flags = frozenset(name for name, is_set in zip(FLAGS, (is_slow, is_flagged), strict=True) if is_set)
    throughput = values[speed] if speed and math.isfinite(values[speed]) else None
    return TriageLine(line, state, flags, newest if is_finite else None, throughput)


async def _newest_values(store: Store, uids: Sequence[str]) -> dict[str, Mapping[str, float]]:
    found: dict[str, Progress] = {}
    for first in range(0, len(uids), _AT_ONCE):
        found |= await store.newest_progress(uids[first : first + _AT_ONCE])
    return {uid: progress.last_values for uid, progress in found.items()}


def _progress(line: Overview) -> float | None:
    target, done = line.target_iteration, line.summary.last_iteration
    return None if not target or done is None else done / target


def offset_of(cursor: str) -> int:
    """Read the place in a sorted list at which a page begins. Raises BadRequest."""
    if not cursor:
        return 0
    begins, _, number = cursor.partition(":")
    if begins != "at" or not number.isdecimal() or len(number) > 9:
        raise BadRequest("cursor is none that this server gave")
    return int(number)


def triage_json(line: TriageLine) -> dict[str, Any]:
    """A line as the list answers it."""
    summary: dict[str, Any] = msgspec.to_builtins(line.overview.summary)
    return {
        **summary,
        "state": line.state,
        "flags": sorted(line.flags),
        "target_iteration": line.overview.target_iteration,
        "event": line.overview.event or None,
        "event_at": line.overview.event_at,
        "event_iteration": line.overview.event_iteration,
    }
