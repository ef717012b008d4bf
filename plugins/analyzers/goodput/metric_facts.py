"""Facts out of the metrics of an attempt's rows: waits for data, the batch size, and where evaluations were logged."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from lens_core import MetricInfo, PointQuery, RunSummary, Store

from .drafts import BATCH, DATA_WAIT, DATA_WAIT_OF_RANK, Draft
from .facts import DataWaits, Floats, Ints, Span

# Metrics of evaluations, by a part of their name.
OF_EVALUATIONS = re.compile(r"(^|[/._])(val|valid|validation|eval|evaluation|test)([/._]|$)", re.IGNORECASE)
# An evaluation is logged now and then; what most rows have is no mark of one.
_MOST_SHARE = 0.5
_NEWEST_ROWS = 100


class MetricNames(msgspec.Struct, frozen=True):
    """The metrics that the ledger reads; `has_own_rows`: evaluations are logged in rows of their own."""

    names: frozenset[str]
    evaluation: str = ""
    has_own_rows: bool = False


def choose_metrics(available: Sequence[MetricInfo], streams: Sequence[RunSummary]) -> MetricNames:
    """The metrics that matter: of those of evaluations the one with most points, if most rows have none of it."""
    every = frozenset(info.name for info in available)
    names = every & {DATA_WAIT, BATCH}
    if DATA_WAIT not in names:
        names |= {name for name in every if name.startswith(DATA_WAIT_OF_RANK)}
    rows = sum(stream.rows for stream in streams)
    marks = [one for one in available if OF_EVALUATIONS.search(one.name) and one.count <= _MOST_SHARE * rows]
    others = [one.count for one in available if not OF_EVALUATIONS.search(one.name)]
    if not marks or not others:
        return MetricNames(names)
    best = max(marks, key=lambda one: (one.count, one.name))
    return MetricNames(names, best.name, rows >= max(others) + best.count / 2)


async def read_metrics(store: Store, query: PointQuery, stream: RunSummary, chosen: MetricNames, draft: Draft) -> None:
    """Read them into the draft of an attempt, whose rows are read already."""
    if BATCH in chosen.names:
        draft.batches += await _read_batches(store, query, stream)
    waiting = sorted(chosen.names - {BATCH})
    if waiting:
        steps, waits = _highest_of_each(*await _read_values(store, query, *waiting))
        if len(steps):
            draft.waits = DataWaits(steps, waits / 1000.0)
    if chosen.evaluation and draft.columns:
        steps, _ = await _read_values(store, query, chosen.evaluation)
        draft.evaluations += _marks(draft.columns[0].steps, draft.columns[0].times, steps, own_rows=chosen.has_own_rows)


async def _read_batches(store: Store, query: PointQuery, stream: RunSummary) -> list[tuple[int, float]]:
    """The batch size where it changes: it grows as a rule, so all rows are read only if the ends differ."""
    each = (stream.last_seen - stream.first_seen) * min(1.0, _NEWEST_ROWS / max(1, stream.rows))
    oldest = msgspec.structs.replace(query, end_ms=round(stream.first_seen + each))
    newest = msgspec.structs.replace(query, start_ms=round(stream.last_seen - each))
    parts = [await _read_values(store, part, BATCH) for part in (oldest, newest)]
    if all(len(sizes) for _, sizes in parts) and len(np.unique(np.concatenate([sizes for _, sizes in parts]))) == 1:
        steps, sizes = parts[0]
        return [(int(steps[0]), float(sizes[0]))]
    steps, sizes = await _read_values(store, query, BATCH)
    order = np.argsort(steps, kind="stable")
    steps, sizes = steps[order], sizes[order]
    is_first = np.append(True, np.diff(sizes) != 0)[: len(sizes)]
    return list(zip(steps[is_first].tolist(), sizes[is_first].tolist(), strict=True))


def _marks(steps: Ints, times: Floats, evaluated: Ints, *, own_rows: bool) -> list[Span]:
    """A mark after the row before each evaluation: its own row comes when it is over."""
    order = np.argsort(steps, kind="stable")
    steps, times = steps[order], times[order]
    places = np.searchsorted(steps, np.unique(evaluated)) - (1 if own_rows else 0)
    found = places[(places >= 0) & (places < len(steps))].tolist()
    return [Span(float(times[at]), float(times[at]), int(steps[at]), marker=True) for at in found]


def _highest_of_each(steps: Ints, values: Floats) -> tuple[Ints, Floats]:
    """The highest value of each step: of the rank that waits longest."""
    order = np.lexsort((values, steps))
    steps, values = steps[order], values[order]
    is_last = np.append(steps[1:] != steps[:-1], True)[: len(steps)]
    return steps[is_last], values[is_last]


async def _read_values(store: Store, query: PointQuery, *names: str) -> tuple[Ints, Floats]:
    """The finite values of metrics with their steps."""
    steps, values = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    async for piece in store.metric_columns(msgspec.structs.replace(query, metrics=names)):
        if len(piece):
            found = np.frombuffer(piece.values, dtype=np.float64)
            finite = np.isfinite(found)
            steps.append(np.array(piece.iterations, dtype=np.int64)[finite])
            values.append(found[finite])
    return np.concatenate(steps), np.concatenate(values)
