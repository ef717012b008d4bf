"""Points of a store as buckets of curves, and rank by rank; for any store, because it is asked for all points."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np

from ..model.queries import PointColumns, PointQuery
from ..plugin_api.store import Store
from .buckets import Buckets, CurveBuckets, MovingAverage
from .curve_options import CurveOptions
from .point_text import special_name

# The number of points that are reduced at one time; pieces of a store are smaller.
_AT_ONCE = 50_000

Points = Callable[[PointQuery], AsyncIterator[PointColumns]]


class Curves:
    """The curves of one answer; `series` has the figures of each once all pieces were read."""

    def __init__(self, store: Store, query: PointQuery, points: Points, options: CurveOptions) -> None:
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
        """The points, or their buckets; the curves of one rank and source after those of another."""
        for query, more in await self._queries():
            found = self._points(query) if self._options.buckets is None else self._reduced(query, more)
            async with _closing(found):
                async for piece in found:
                    rank = {name: [value] * len(piece) for name, value in more.items()}
                    yield msgspec.structs.replace(piece, extras={**rank, **piece.extras})

    async def _queries(self) -> list[tuple[PointQuery, dict[str, Any]]]:
        """One query for each rank and, of buckets, for each source: the points of one curve come in a row then."""
        query, options, uid = self._query, self._options, self._query.workload_uid
        found: list[tuple[PointQuery, dict[str, Any]]] = [(query, {})]
        if options.by_rank:
            detail = await self._store.workload(uid)
            ranks = {-1 if run.rank is None else run.rank for run in (detail.runs if detail else [])}
            wanted = sorted(ranks if query.rank is None else ranks & {query.rank})
            found = [
                (msgspec.structs.replace(query, rank=rank), {"rank": None if rank < 0 else rank}) for rank in wanted
            ]
        if options.buckets is None:
            return found
        names = [source.name for source in await self._store.metric_sources(uid)]
        chosen = [name for name in names if not query.sources or name in query.sources]
        if len(chosen) < 2:
            return found
        return [(msgspec.structs.replace(one, data_source=name), more) for one, more in found for name in chosen]

    async def _reduced(self, query: PointQuery, more: dict[str, Any]) -> AsyncIterator[PointColumns]:
        """The curves of a query as buckets; the average begins where the curve does, whatever part is answered."""
        start = query.start_ms
        pieces = self._points(query if self._options.smooth is None else msgspec.structs.replace(query, start_ms=None))
        gathered: _Gathered | None = None
        async with _closing(pieces):
            async for piece in pieces:
                if gathered is None or not gathered.is_of(piece):
                    if gathered is not None:
                        yield self._ended(gathered, more)
                    gathered = _Gathered(piece, self._options, start)
                gathered.append_piece(piece)
        if gathered is not None:
            yield self._ended(gathered, more)

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
        self._curve = CurveBuckets(options.buckets or 0, self._average, self._start_ms)
        self._clear()

    def _clear(self) -> None:
        self._iterations, self._times, self._values = array("q"), array("q"), array("d")

    def is_of(self, piece: PointColumns) -> bool:
        """Whether a piece belongs to this curve."""
        return _key(piece) == _key(self._first)

    def append_piece(self, piece: PointColumns) -> None:
        """Add the points of a piece."""
        self._iterations += piece.iterations
        self._times += piece.timestamps
        self._values += piece.values
        if len(self._values) >= _AT_ONCE:
            self._reduce()

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


@asynccontextmanager
async def _closing(pieces: AsyncIterator[PointColumns]) -> AsyncIterator[None]:
    """Close the store's own generator, however the reading of it ends."""
    try:
        yield
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


def _key(piece: PointColumns) -> tuple[str, str, str, int]:
    return piece.metric_name, piece.data_source, piece.run_id, piece.attempt


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
