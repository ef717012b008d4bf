"""Points of a store as buckets of curves, and rank by rank; for any store, because it is asked for all points."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
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
_AT_ONCE_OF_RANK = 2_000
# The number of summaries over ranks that the buckets of a curve are made of, at most.
_MOST_SUMMARIES = 20_000
# From so many ranks on each is asked for by itself: what is gathered of all of them at one time would be too much.
_MOST_RANKS = 1024
_NO_RANK = -1

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
        ranks = await self._ranks()
        if self._are_read_at_once(ranks):
            query = msgspec.structs.replace(self._query, fields=("rank",))
            pieces = [piece async for piece in self._reduced(query, {})]
            for piece in sorted(pieces, key=_rank_of):
                yield piece
            self.series.sort(key=lambda figures: _NO_RANK if figures["rank"] is None else figures["rank"])
            return
        for rank in ranks:
            query = self._query if rank is None else msgspec.structs.replace(self._query, rank=rank)
            more = {} if rank is None else {"rank": None if rank < 0 else rank}
            found = self._points(query) if self._options.buckets is None else self._reduced(query, more)
            async with closing(found):
                async for piece in found:
                    yield _with_constants(piece, more) if self._options.buckets is None else piece

    async def _ranks(self) -> list[int | None]:
        """The ranks that have curves of their own; None for all of them together."""
        query = self._query
        if not self._options.by_rank:
            return [None]
        detail = await self._store.workload(query.workload_uid)
        ranks = {-1 if run.rank is None else run.rank for run in (detail.runs if detail else [])}
        return [*sorted(ranks if query.rank is None else ranks & {query.rank})]

    def _are_read_at_once(self, ranks: Sequence[int | None]) -> bool:
        """Whether one question tells of all ranks, and what is held of each of them meanwhile is little."""
        is_little = self._options.buckets is not None and not self._options.percentiles
        return is_little and 1 < len(ranks) <= _MOST_RANKS and "fields" in self._store.point_options

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
        gathered: dict[tuple[object, ...], _Gathered] = {}  # by source and rank, of one attempt
        async with closing(pieces):
            async for whole in pieces:
                if _attempt_of(whole) != attempt:
                    for one in gathered.values():
                        yield self._ended(one)
                    attempt, gathered = _attempt_of(whole), {}
                for rank, piece in _ranks_apart(whole):
                    key = (piece.data_source, *rank.values())
                    if key not in gathered:
                        most = _AT_ONCE_OF_RANK if rank else _AT_ONCE
                        gathered[key] = _Gathered(piece, self._options, start, {**more, **rank}, most)
                    gathered[key].append_piece(piece)
        for one in gathered.values():
            yield self._ended(one)

    def _ended(self, gathered: _Gathered) -> PointColumns:
        columns, figures = gathered.result()
        if len(columns):
            self.series.append(figures)
        return columns


class _Gathered:
    """The points of one curve, held until they are enough to be reduced."""

    def __init__(
        self, first: PointColumns, options: CurveOptions, start_ms: int | None, more: Mapping[str, Any], at_once: int
    ) -> None:
        self._first = first
        self._more = more  # of each point, and of the figures
        self._start_ms = start_ms if options.smooth is not None else None
        self._average = None if options.smooth is None else MovingAverage(options.smooth)
        self._curve = CurveBuckets(options.buckets or 0, self._average, self._start_ms, percentiles=options.percentiles)
        self._at_once = at_once
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
        if len(self._values) >= self._at_once:
            self._reduce()

    def _append_summaries(self, piece: PointColumns) -> None:
        iterations, times = (np.frombuffer(column, np.int64) for column in (piece.iterations, piece.timestamps))
        columns = {name: np.array(column, float) for name, column in piece.extras.items()}  # NaN for none
        counts = columns["count"].astype(np.int64)
        finite = counts - columns["not_finite"].astype(np.int64)
        means = np.frombuffer(piece.values, np.float64)
        # The sum of the largest values is infinite; their mean is between them.
        means = np.where(np.isinf(means) & (finite > 0), np.clip(means, columns["min"], columns["max"]), means)
        points = Points(iterations, times, means)
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
        columns = _with_constants(columns, self._more)
        figures = {
            "metric_name": first.metric_name,
            "data_source": first.data_source,
            "run_id": first.run_id,
            "attempt": first.attempt,
            **self._curve.figures(),
            **self._more,
        }
        if self._average is not None:
            average = self._average
            figures["smoothing"] = {"weight": average.weight, "mean": average.mean, "steps": average.steps}
        return columns, figures


def _attempt_of(piece: PointColumns) -> tuple[object, ...]:
    return piece.metric_name, piece.run_id, piece.attempt


def _with_constants(piece: PointColumns, more: Mapping[str, Any]) -> PointColumns:
    """The piece with these beside each of its points."""
    if not more:
        return piece
    beside = {name: [value] * len(piece) for name, value in more.items()}
    return msgspec.structs.replace(piece, extras={**beside, **piece.extras})


def _rank_of(piece: PointColumns) -> int:
    rank = piece.extras["rank"][0] if len(piece) else None
    return _NO_RANK if rank is None else rank


def _ranks_apart(piece: PointColumns) -> Iterator[tuple[dict[str, Any], PointColumns]]:
    """The points of each rank, where a piece says which rank each of its points is of."""
    ranks = piece.extras.get("rank")
    if ranks is None:
        yield {}, piece
        return
    extras = {name: column for name, column in piece.extras.items() if name != "rank"}
    numbers = np.array([_NO_RANK if rank is None else rank for rank in ranks], np.int64)
    if numbers.size and (numbers == numbers[0]).all():
        yield {"rank": ranks[0]}, msgspec.structs.replace(piece, extras=extras)
        return
    columns = [np.frombuffer(column, np.int64) for column in (piece.iterations, piece.timestamps, piece.values)]
    order = np.argsort(numbers, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        iterations, times, values = (array("q", column[places].tobytes()) for column in columns)
        few = msgspec.structs.replace(
            piece,
            iterations=iterations,
            timestamps=times,
            values=array("d", values.tobytes()),
            extras={name: [column[place] for place in places] for name, column in extras.items()},
        )
        yield {"rank": ranks[places[0]]}, few


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
