"""Runs as rows of a table: configuration, last and best values, state; filtered, sorted, grouped, in pages."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..base.errors import BadRequest
from ..model.queries import EventRow, PointQuery, RunSummary, WorkloadDetail
from ..plugin_api.overview import line_of, state_of
from ..plugin_api.store import Store
from .parameters import ensure_answerable
from .point_text import special_name

MOST_METRICS = 40
MOST_FILTERS = 20
_ALL_ITERATIONS = 2**53
_MOST_KEPT = 500
_AT_ONCE = 4
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
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def run_rows(self, store: Store, uids: Sequence[str]) -> list[RunRow]:
        """All rows of these workloads."""
        found = await asyncio.gather(*(self._facts(store, uid) for uid in uids))
        now_ms = round(time.time() * 1000)
        return [facts.row(now_ms) for of_workload in found for facts in of_workload]

    async def _facts(self, store: Store, uid: str) -> list[_RunFacts]:
        async with self._turns:
            version = await store.version(uid)
            kept = self._kept.get(uid)
            if kept is not None and kept[0] == version:
                return kept[1]
            found = await _facts_of(store, uid)
        self._kept[uid] = version, found
        self._kept.move_to_end(uid)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return found


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


async def _facts_of(store: Store, uid: str) -> list[_RunFacts]:
    detail = await store.workload(uid)
    if detail is None:
        return []
    by_run: dict[str, list[RunSummary]] = {}
    for run in detail.runs:
        by_run.setdefault(run.run_id, []).append(run)
    events = await store.events(uid, limit=_MOST_EVENTS)
    configs = _configurations(await store.evidence(uid))
    values = await _values_of(store, uid)
    found = []
    for run_id, runs in by_run.items():
        of_run = [event for event in events if len(by_run) == 1 or event.run_id == run_id]
        last, best = values.get(run_id, ({}, {}))
        found.append(_RunFacts(detail, runs, of_run, configs.get(run_id) or configs.get("", {}), last, best))
    return found


def _configurations(evidence: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The configuration of each run, flat; evidence newest first, and the newest holds."""
    found: dict[str, dict[str, Any]] = {}
    for item in reversed(evidence):
        facts = item.get("facts") or {}
        wandb = facts.get("wandb")
        config = (wandb.get("config") if isinstance(wandb, Mapping) else None) or facts.get("config")
        if isinstance(config, Mapping):
            _merge_flat(config, "", found.setdefault(item.get("run_id") or "", {}))
    return found


def _merge_flat(value: Mapping[str, Any], path: str, into: dict[str, Any]) -> None:
    for key, item in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, Mapping):
            _merge_flat(item, name, into)
        else:
            into[name] = item


async def _values_of(store: Store, uid: str) -> dict[str, tuple[dict[str, float | str], dict[str, float]]]:
    """The last and the best value of each metric of each run."""
    metrics = sorted(await store.available_metrics(uid, ""), key=lambda info: (-info.count, info.name))[:MOST_METRICS]
    names = tuple(info.name for info in metrics)
    if not names:
        return {}
    query = PointQuery(workload_uid=uid, metrics=names, aggregate="min,max,last", interval_iterations=_ALL_ITERATIONS)
    ensure_answerable(store, query, "json")
    newest: dict[tuple[str, str], tuple[int, float]] = {}
    best: dict[str, dict[str, float]] = {}
    async for piece in store.metric_columns(query):
        more = _MORE_IS_BETTER.search(piece.metric_name.lower()) is not None
        choose: Callable[[float, float], float] = max if more else min
        for kind, at, value in zip(piece.extras["aggregate"], piece.timestamps, piece.values, strict=True):
            known = best.setdefault(piece.run_id, {})
            if kind == "last":
                place = piece.run_id, piece.metric_name
                newest[place] = max(newest.get(place, (at, value)), (at, value), key=lambda one: one[0])
            elif kind == ("max" if more else "min") and math.isfinite(value):
                known[piece.metric_name] = choose(known.get(piece.metric_name, value), value)
    last: dict[str, dict[str, float | str]] = {}
    for (run_id, name), (_, value) in newest.items():
        last.setdefault(run_id, {})[name] = value if math.isfinite(value) else special_name(value)
    return {run_id: (last.get(run_id, {}), best.get(run_id, {})) for run_id in {*last, *best}}


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
