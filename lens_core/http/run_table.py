"""Runs as rows of a table: configuration, last and best values, state; filtered, sorted, grouped, in pages."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ..base.errors import BadRequest
from ..model.queries import EventRow, PointColumns, PointQuery, RunSummary, RunValues, WorkloadDetail
from ..plugin_api.overview import SILENT_AFTER_MS, line_of, state_of
from ..plugin_api.store import Store
from .parameters import ensure_answerable
from .point_text import special_name

MOST_METRICS = 40
MOST_FILTERS = 20
_ALL_ITERATIONS = 2**53
_MOST_KEPT = 500
_AT_ONCE = 4  # workloads whose values are computed from points
_MOST_RANKS = 64  # that are looked for the last value of a curve, one after the other
_MOST_EVENTS = 1000
_FILTER = re.compile(r"\s*([^=!<>~]+?)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*")
# The names of metrics of which more is better; of all others the lowest value is the best.
_MORE_IS_BETTER = re.compile(r"acc|reward|score|auc|f1|bleu|rouge|map\b|mfu|flops|per_s|throughput|tokens_per|it/s")
_COLUMNS = ("name", "workload_uid", "run_id", "state", "attempts", "rows", "last_iteration", "first_seen", "last_seen")
_GROUPS = ("config", "last", "best")


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a workload, all of its attempts, ranks and sources together. Times in ms.

    `last` and `best` are by metric, texts where a value is not finite. `config` is flat: names with dots.
    """

    workload_uid: str
    name: str
    run_id: str
    state: str
    attempts: int
    rows: int
    last_iteration: int | None
    first_seen: int
    last_seen: int
    config: dict[str, Any]
    last: dict[str, float | str]
    best: dict[str, float]

    def value(self, field: str) -> Any:
        """The value of a column such as `state`, `config.lr` or `last.loss`; None without one."""
        group, _, key = field.partition(".")
        return getattr(self, group).get(key) if key else getattr(self, group)


class Condition(NamedTuple):
    """A column, how it is compared, and with what."""

    field: str
    operator: str
    text: str

    @staticmethod
    def of_text(text: str) -> Condition:
        """Read `config.lr=0.001`, `last.loss<2`, `name~llama`. Raises BadRequest."""
        matched = _FILTER.fullmatch(text)
        if matched is None:
            raise BadRequest(f"filter must be like last.loss<2, config.lr=0.001 or name~llama, not {text[:80]!r}")
        return Condition(field_of("filter", matched[1]), matched[2], matched[3])

    def holds_of(self, row: RunRow) -> bool:
        """Whether a row is wanted; one without the value is not, but for `!=`."""
        value = row.value(self.field)
        if self.operator == "~":
            return value is not None and self.text.casefold() in str(value).casefold()
        number = _number(self.text)
        if number is not None and _number(value) is not None:
            one: Any = _number(value)
            other: Any = number
        else:
            one, other = None if value is None else str(value).casefold(), self.text.casefold()
        if self.operator in ("=", "!="):
            return bool(one == other) == (self.operator == "=")
        if one is None or isinstance(one, str) != isinstance(other, str):
            return False
        compare: Mapping[str, Callable[[Any, Any], bool]] = {
            "<": lambda a, b: a < b,
            "<=": lambda a, b: a <= b,
            ">": lambda a, b: a > b,
            ">=": lambda a, b: a >= b,
        }
        return compare[self.operator](one, other)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def field_of(parameter: str, text: str) -> str:
    """The name of a column. Raises BadRequest."""
    group, _, key = text.partition(".")
    if (text in _COLUMNS) or (group in _GROUPS and key):
        return text
    known = [*_COLUMNS, *(f"{group}.NAME" for group in _GROUPS)]
    raise BadRequest(f"{parameter} must name a column: {', '.join(known)}; not {text[:80]!r}")


class RunTable:
    """Makes the rows of workloads; those of each are kept until something is written about it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[str, list[_RunFacts]]] = OrderedDict()
        self._turn = asyncio.Lock()

    async def run_rows(self, store: Store, uids: Sequence[str]) -> list[RunRow]:
        """All rows of these workloads."""
        async with self._turn:
            # The versions come first: a write in between makes rows that are newer than theirs.
            versions = await store.versions_of(uids)
            changed = [uid for uid in uids if uid not in self._kept or self._kept[uid][0] != versions[uid]]
            made = await _facts_of(store, changed) if changed else {}
            found = [made[uid] if uid in made else self._kept[uid][1] for uid in uids]
            for uid, facts in made.items():
                self._kept[uid] = versions[uid], facts
                self._kept.move_to_end(uid)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        now_ms = round(time.time() * 1000)
        return [facts.row(now_ms) for of_workload in found for facts in of_workload]


class _RunFacts(NamedTuple):
    """All of a row but its state, which depends on the time."""

    detail: WorkloadDetail
    runs: list[RunSummary]
    events: list[EventRow]
    config: dict[str, Any]
    last: dict[str, float | str]
    best: dict[str, float]

    def row(self, now_ms: int) -> RunRow:
        """The row at a time."""
        runs, summary = self.runs, self.detail.summary
        return RunRow(
            workload_uid=summary.workload_uid,
            name=summary.name,
            run_id=runs[0].run_id,
            state=state_of(line_of(summary, runs, self.events), now_ms),
            attempts=len({run.attempt for run in runs}),
            rows=sum(run.rows for run in runs),
            last_iteration=max((run.last_iteration for run in runs if run.last_iteration is not None), default=None),
            first_seen=min(run.first_seen for run in runs),
            last_seen=max(run.last_seen for run in runs),
            config=self.config,
            last=self.last,
            best=self.best,
        )


async def _facts_of(store: Store, uids: Sequence[str]) -> dict[str, list[_RunFacts]]:
    """The runs of workloads; none of one that nobody knows."""
    details = await store.workloads_of(uids)
    known = list(details)
    events, configs, repeated, kept_values = await asyncio.gather(
        store.events_of(known, limit=_MOST_EVENTS),
        store.run_configs(known),
        store.repeated_runs(known),
        store.run_values(known, most=MOST_METRICS),
    )
    values = dict(kept_values)
    missing = [uid for uid in known if uid not in values]
    for first in range(0, len(missing), _AT_ONCE):
        some = missing[first : first + _AT_ONCE]
        values.update(
            zip(some, await asyncio.gather(*(_values_of_points(store, details[uid]) for uid in some)), strict=True)
        )
    return {
        uid: _runs_of(
            details[uid], events[uid], _flat_configs(configs[uid]), values[uid], _tellers(repeated.get(uid, {}))
        )
        if uid in details
        else []
        for uid in uids
    }


def _tellers(repeated: Mapping[str, str]) -> dict[str, str]:
    """By run the run that stands for it in the end: a log is told by a tracker, which another one tells."""
    found = {}
    for run_id in repeated:
        passed = {run_id}
        teller = repeated[run_id]
        while teller in repeated and teller not in passed:
            passed.add(teller)
            teller = repeated[teller]
        if teller not in passed:
            found[run_id] = teller
    return found


def _runs_of(
    detail: WorkloadDetail,
    events: Sequence[EventRow],
    configs: Mapping[str, dict[str, Any]],
    values: Mapping[str, RunValues],
    tellers: Mapping[str, str],
) -> list[_RunFacts]:
    """The rows of a workload; a run that others tell of, too, has what they know beside it."""
    by_run: dict[str, list[RunSummary]] = {}
    repeats: dict[str, list[str]] = {}
    for run in detail.runs:
        by_run.setdefault(tellers.get(run.run_id, run.run_id), []).append(run)
    for run_id, teller in sorted(tellers.items()):
        repeats.setdefault(teller, []).append(run_id)
    events_of: dict[str, list[EventRow]] = {}
    for event in events:
        teller = tellers.get(event.run_id, event.run_id) if event.run_id else ""
        events_of.setdefault(teller, []).append(event)
    found = []
    newest = max((run.last_seen for run in detail.runs), default=0)
    for run_id, runs in by_run.items():
        of_run = list(events) if len(by_run) == 1 else events_of.get(run_id, [])
        if run_id and len(by_run) > 1 and max(run.last_seen for run in runs) >= newest - SILENT_AFTER_MS:
            # A stall that names no run is of all that logged until then.
            shared = [event for event in events_of.get("", []) if event.type in ("stalled", "resumed")]
            of_run = sorted([*of_run, *shared], key=lambda event: -event.timestamp)
        names = (run_id, *repeats.get(run_id, ()))
        config = next((configs[name] for name in (*names, "") if configs.get(name)), {})
        last, best = _last_and_best([values[name] for name in names if name in values])
        own = [run for run in runs if run.run_id == run_id]
        found.append(_RunFacts(detail, own or runs, of_run, config, last, best))
    return found


def _last_and_best(values: Sequence[RunValues]) -> tuple[dict[str, float | str], dict[str, float]]:
    """The last and the best values of a run, first those of its own, then what others add."""
    last: dict[str, float | str] = {}
    best: dict[str, float] = {}
    for one in reversed(values):
        last |= {name: value if math.isfinite(value) else special_name(value) for name, value in one.last.items()}
        best |= {name: value for name, value in one.lowest.items() if not _more_is_better(name)}
        best |= {name: value for name, value in one.highest.items() if _more_is_better(name)}
    return last, best


@lru_cache(4096)
def _more_is_better(name: str) -> bool:
    return _MORE_IS_BETTER.search(name.lower()) is not None


def _flat_configs(configs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The configuration of each run, flat; those of a run newest first, and the newest holds."""
    found: dict[str, dict[str, Any]] = {}
    for run_id, of_run in configs.items():
        for config in reversed(of_run):
            merge_flat(config, "", found.setdefault(run_id, {}))
    return found


def merge_flat(value: Mapping[str, Any], path: str, into: dict[str, Any]) -> None:
    """Put the settings of a nested configuration into a flat one: `model.width`."""
    for key, item in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, dict):  # evidence is decoded JSON; to ask for any Mapping takes twenty times as long
            merge_flat(item, name, into)
        else:
            into[name] = item


class _Curve(NamedTuple):
    run_id: str
    name: str
    data_source: str
    attempt: int

    @classmethod
    def of_piece(cls, piece: PointColumns) -> _Curve:
        """The curve that a piece is of."""
        return cls(piece.run_id, piece.metric_name, piece.data_source, piece.attempt)


async def _values_of_points(store: Store, detail: WorkloadDetail) -> dict[str, RunValues]:
    """The values of each run of a workload, computed from all of its points."""
    uid = detail.summary.workload_uid
    metrics = sorted(await store.available_metrics(uid, ""), key=lambda info: (-info.count, info.name))[:MOST_METRICS]
    names = tuple(info.name for info in metrics)
    if not names:
        return {}
    query = PointQuery(workload_uid=uid, metrics=names, aggregate="min,max", interval_iterations=_ALL_ITERATIONS)
    ensure_answerable(store, query, "json")
    found: dict[str, RunValues] = {}
    ends: dict[_Curve, tuple[float, float]] = {}  # below iteration 0 is an interval of its own
    async for piece in store.metric_columns(query):
        curve = _Curve.of_piece(piece)
        for kind, value in zip(piece.extras["aggregate"], piece.values, strict=True):
            low, high = ends.get(curve, (math.inf, -math.inf))
            ends[curve] = (min(low, value), high) if kind == "min" else (low, max(high, value))
    for (run_id, name, *_), (low, high) in ends.items():
        values = found.setdefault(run_id, RunValues(last={}, lowest={}, highest={}))
        if math.isfinite(low):
            values.lowest[name] = min(values.lowest.get(name, low), low)
        if math.isfinite(high):
            values.highest[name] = max(values.highest.get(name, high), high)
    newest: dict[tuple[str, str], int] = {}
    for curve, (at, value) in (await _last_points(store, detail, ends)).items():
        if at > newest.get(curve[:2], at - 1):
            newest[curve[:2]] = at
            found[curve.run_id].last[curve.name] = value
    return found


async def _last_points(
    store: Store, detail: WorkloadDetail, curves: Iterable[_Curve]
) -> dict[_Curve, tuple[int, float]]:
    """Time and value of the last point of each curve, of the lowest rank that has it."""
    found: dict[_Curve, tuple[int, float] | None] = dict.fromkeys(curves)
    ranks = sorted({-1 if run.rank is None else run.rank for run in detail.runs})[:_MOST_RANKS]
    for rank in (*ranks, None):
        names = tuple({curve.name: None for curve, point in found.items() if point is None})
        if not names:
            break
        query = PointQuery(workload_uid=detail.summary.workload_uid, metrics=names, rank=rank, last=1)
        ensure_answerable(store, query, "json")
        async for piece in store.metric_columns(query):
            curve = _Curve.of_piece(piece)
            if curve in found and found[curve] is None:
                found[curve] = piece.timestamps[-1], piece.values[-1]
    return {curve: point for curve, point in found.items() if point is not None}


def arrange_rows(
    rows: Sequence[RunRow], conditions: Sequence[Condition], group: str, sort: str, *, is_descending: bool
) -> list[RunRow]:
    """The wanted rows, groups together, in the wanted order; what has no value comes last."""
    found = [row for row in rows if all(condition.holds_of(row) for condition in conditions)]
    found.sort(key=lambda row: (row.name, row.run_id))
    if sort:
        found = _sorted(found, sort, is_descending=is_descending)
    elif is_descending:
        found.reverse()
    return _sorted(found, group, is_descending=False) if group else found


def _sorted(rows: Sequence[RunRow], field: str, *, is_descending: bool) -> list[RunRow]:
    known = [row for row in rows if row.value(field) is not None]
    known.sort(key=lambda row: _order(row.value(field)), reverse=is_descending)
    return [*known, *(row for row in rows if row.value(field) is None)]


def _order(value: Any) -> tuple[bool, float, str]:
    number = _number(value)
    return number is None, number or 0.0, "" if number is not None else str(value).casefold()


def groups_of(rows: Sequence[RunRow], group: str) -> list[dict[str, Any]]:
    """Count the rows of each value of a column, in the order of the rows."""
    counts = Counter(msgspec.json.encode(row.value(group)) for row in rows)
    return [{"value": msgspec.json.decode(value), "count": count} for value, count in counts.items()]
