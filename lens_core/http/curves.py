"""Points of a store as buckets of curves, and rank by rank; for any store, because it is asked for all points."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from ..model.queries import PointColumns, PointQuery
from ..plugin_api.store import Store
from .buckets import Buckets, CurveBuckets, Extremes, MovingAverage, Points
from .curve_options import CurveOptions
from .over_ranks import closing, is_over_ranks, with_summaries
from .point_text import special_name

# The number of points that are reduced at one time; pieces of a store are smaller.
_AT_ONCE = 50_000
# The number of summaries over ranks that the buckets of a curve are made of, at most.
_MOST_SUMMARIES = 20_000

Source = Callable[[PointQuery], AsyncIterator[PointColumns]]


class Curves:
    """The curves of one answer; `series` has the figures of each once all pieces were read."""

    def __init__(self, store: Store, query: PointQuery, points: Source, options: CurveOptions) -> None:
        self._store = store
        self._query = query
        self._points = points
        self._options = options
        self.series: list[dict[str, Any]] = []

    @property
    def columns(self) -> list[str]:
        """The names of what is answered beside each point."""
        return self._options.columns

    @property
    def has_series(self) -> bool:
        """Whether the answer has figures of whole curves."""
        return self._options.buckets is not None

    async def pieces(self) -> AsyncIterator[PointColumns]:
        """The points, or their buckets; the curves of one rank after those of another."""
        for query, more in await self._queries():
            found = self._points(query) if self._options.buckets is None else self._reduced(query, more)
            async with closing(found):
                async for piece in found:
                    rank = {name: [value] * len(piece) for name, value in more.items()}
                    yield msgspec.structs.replace(piece, extras={**rank, **piece.extras})

    async def _queries(self) -> list[tuple[PointQuery, dict[str, Any]]]:
        """One query for each rank, or one for all of them."""
        query = self._query
        if not self._options.by_rank:
            return [(query, {})]
        detail = await self._store.workload(query.workload_uid)
        ranks = {-1 if run.rank is None else run.rank for run in (detail.runs if detail else [])}
        wanted = sorted(ranks if query.rank is None else ranks & {query.rank})
        return [(msgspec.structs.replace(query, rank=rank), {"rank": None if rank < 0 else rank}) for rank in wanted]

    async def _reduced(self, query: PointQuery, more: dict[str, Any]) -> AsyncIterator[PointColumns]:
        """The curves of a query as buckets; the average begins where the curve does, whatever part is answered.

        Sources that name their runs alike come with their points between each other's.
        """
        start = query.start_ms
        options = self._options
        asked = query if options.smooth is None else msgspec.structs.replace(query, start_ms=None)
        if options.smooth is None and not options.percentiles:
            asked = msgspec.structs.replace(asked, over_parts=options.buckets)
        pieces = self._points(with_summaries(asked, _MOST_SUMMARIES))
        attempt: tuple[object, ...] | None = None
        gathered: dict[str, _Gathered] = {}  # by source, of one attempt
        async with closing(pieces):
            async for piece in pieces:
                if _attempt_of(piece) != attempt:
                    for one in gathered.values():
                        yield self._ended(one, more)
                    attempt, gathered = _attempt_of(piece), {}
                if piece.data_source not in gathered:
                    gathered[piece.data_source] = _Gathered(piece, self._options, start)
                gathered[piece.data_source].append_piece(piece)
        for one in gathered.values():
            yield self._ended(one, more)

    def _ended(self, gathered: _Gathered, more: dict[str, Any]) -> PointColumns:
        columns, figures = gathered.result()
        if len(columns):
            self.series.append({**figures, **more})
        return columns


class _Gathered:
    """The points of one curve, held until they are enough to be reduced."""

    def __init__(self, first: PointColumns, options: CurveOptions, start_ms: int | None) -> None:
        self._first = first
        self._start_ms = start_ms if options.smooth is not None else None
        self._average = None if options.smooth is None else MovingAverage(options.smooth)
        self._curve = CurveBuckets(options.buckets or 0, self._average, self._start_ms, percentiles=options.percentiles)
        self._clear()

    def _clear(self) -> None:
        self._iterations, self._times, self._values = array("q"), array("q"), array("d")

    def append_piece(self, piece: PointColumns) -> None:
        """Add the points of a piece, its parts of the curve, or all summaries over ranks of the curve."""
        if is_over_ranks(piece):
            self._append_summaries(piece)
            return
        if "steps" in piece.extras:
            self._append_parts(piece)
            return
        self._iterations += piece.iterations
        self._times += piece.timestamps
        self._values += piece.values
        if len(self._values) >= _AT_ONCE:
            self._reduce()

    def _append_summaries(self, piece: PointColumns) -> None:
        iterations, times = (np.frombuffer(column, np.int64) for column in (piece.iterations, piece.timestamps))
        columns = {name: np.array(column, float) for name, column in piece.extras.items()}  # NaN for none
        counts = columns["count"].astype(np.int64)
        finite = counts - columns["not_finite"].astype(np.int64)
        points = Points(iterations, times, np.frombuffer(piece.values, np.float64))
        self._curve.append_summaries(
            points, columns["lowest_rank"], Extremes(counts, finite, columns["min"], columns["max"])
        )

    def _append_parts(self, piece: PointColumns) -> None:
        if len(self._values):
            self._reduce()
        extras = piece.extras
        steps, counts, not_finite = (np.asarray(extras[name], np.int64) for name in ("steps", "count", "not_finite"))
        lowest, highest, lasts = (np.asarray(extras[name], np.float64) for name in ("min", "max", "last"))
        iterations, times = (np.frombuffer(column, np.int64) for column in (piece.iterations, piece.timestamps))
        means, finite = np.frombuffer(piece.values, np.float64), counts - not_finite
        smoothed, unknown = np.full(counts.size, np.nan), np.zeros_like(counts)
        self._curve.append_parts(
            Buckets(unknown, iterations, times, steps, counts, finite, means, lowest, highest, lasts, smoothed)
        )

    def _reduce(self) -> None:
        iterations, times = (np.frombuffer(column, np.int64) for column in (self._iterations, self._times))
        self._curve.append_to_curve(iterations, times, np.frombuffer(self._values, np.float64))
        self._clear()

    def result(self) -> tuple[PointColumns, dict[str, Any]]:
        """The buckets as points, and the figures of the whole curve."""
        if len(self._values):
            self._reduce()
        first, found = self._first, self._curve.buckets()
        has_numbers = found.finite > 0
        columns = PointColumns(
            metric_name=first.metric_name,
            data_source=first.data_source,
            run_id=first.run_id,
            attempt=first.attempt,
            iterations=array("q", found.iterations.tobytes()),
            timestamps=array("q", found.times.tobytes()),
            values=array("d", np.where(has_numbers, found.means, found.lasts).tobytes()),
            extras=_extras(found, self._average is not None),
        )
        figures = {
            "metric_name": first.metric_name,
            "data_source": first.data_source,
            "run_id": first.run_id,
            "attempt": first.attempt,
            **self._curve.figures(),
        }
        if self._average is not None:
            average = self._average
            figures["smoothing"] = {"weight": average.weight, "mean": average.mean, "steps": average.steps}
        return columns, figures


def _attempt_of(piece: PointColumns) -> tuple[object, ...]:
    return piece.metric_name, piece.run_id, piece.attempt


def _extras(found: Buckets, is_smoothed: bool) -> dict[str, Sequence[Any]]:
    has_numbers = (found.finite > 0).tolist()
    extras: dict[str, Sequence[Any]] = {
        "min": [low if known else None for low, known in zip(found.lowest.tolist(), has_numbers, strict=True)],
        "max": [high if known else None for high, known in zip(found.highest.tolist(), has_numbers, strict=True)],
        "last": [
            value if finite else special_name(value)
            for value, finite in zip(found.lasts.tolist(), np.isfinite(found.lasts).tolist(), strict=True)
        ],
        "steps": found.steps.tolist(),
        "count": found.counts.tolist(),
        "not_finite": (found.counts - found.finite).tolist(),
    }
    if is_smoothed:
        extras["smoothed"] = [None if value != value else value for value in found.smoothed.tolist()]
    return extras
