"""Facts out of the metrics of an attempt's rows: waits for data, the batch size, and where evaluations were logged."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from lens_core import MetricInfo, PointQuery, RunSummary, Store

from .drafts import BATCH, DATA_WAIT, Draft
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
    names = frozenset(info.name for info in available) & {DATA_WAIT, BATCH}
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
        # The newest rows have it as a rule, and all of them need not be read.
        share = min(1.0, _NEWEST_ROWS / max(1, stream.rows))
        newest = round(stream.last_seen - (stream.last_seen - stream.first_seen) * share)
        _, sizes = await _read_values(store, msgspec.structs.replace(query, start_ms=newest), BATCH)
        if not len(sizes):
            _, sizes = await _read_values(store, query, BATCH)
        if len(sizes):
            draft.batch = f"{sizes[-1]:g}"
    if DATA_WAIT in chosen.names:
        steps, waits = await _read_values(store, query, DATA_WAIT)
        if len(steps):
            draft.waits = DataWaits(steps, waits / 1000.0)
    if chosen.evaluation and draft.columns:
        steps, _ = await _read_values(store, query, chosen.evaluation)
        draft.evaluations += _marks(draft.columns[0].steps, draft.columns[0].times, steps, own_rows=chosen.has_own_rows)


def _marks(steps: Ints, times: Floats, evaluated: Ints, *, own_rows: bool) -> list[Span]:
    """A mark behind the row before each evaluation: its own row comes when it is over."""
    order = np.argsort(steps, kind="stable")
    steps, times = steps[order], times[order]
    places = np.searchsorted(steps, np.unique(evaluated)) - (1 if own_rows else 0)
    found = places[(places >= 0) & (places < len(steps))].tolist()
    return [Span(float(times[at]), float(times[at]), int(steps[at]), marker=True) for at in found]


async def _read_values(store: Store, query: PointQuery, name: str) -> tuple[Ints, Floats]:
    """The finite values of one metric with their steps."""
    steps, values = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    async for piece in store.metric_columns(msgspec.structs.replace(query, metrics=(name,))):
        if len(piece):
            found = np.frombuffer(piece.values, dtype=np.float64)
            finite = np.isfinite(found)
            steps.append(np.array(piece.iterations, dtype=np.int64)[finite])
            values.append(found[finite])
    return np.concatenate(steps), np.concatenate(values)
