"""Reading one metric of many streams: which blocks and which rows (the plan), then both in bounded pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from .blocks import (
    BLOCK_ROWS,
    HIGHEST_STEP,
    LOWEST_STEP,
    POINT_BYTES,
    SUMMARY_POINTS,
    Frame,
    Rows,
    sent_doubles,
    sent_integers,
    unpack_doubles,
    unpack_positions,
    unpack_spaced,
    unpack_summaries,
)
from .identity import Connection
from .point_store import Curve, Known
from .reducing import coarseness, thin
from .series import Doubles, Integers, Series
from .streams import ALL, Header, Part, Range, Stream, Window

_BLOCKS_AT_ONCE = 32
_SUMMARIES_AT_ONCE = 2048
_ROWS_AT_ONCE = 65_536
# From so many metrics on the rows outside of blocks are read with all that they hold, once, instead of for each metric.
_MANY_METRICS = 4
_MOST_KEPT_VALUES = 1_000_000
_TIME = "coalesce(r.event_time_us, r.received_us)"
_SENT = ", ".join(f"array_send(array_agg({name}) filter (where value is not null))" for name in ("step", "n", "at"))
_SENT += ", array_send(array_agg(value::float8) filter (where value is not null))"
_WHOLE_ROWS = f"""
    select place, array_send(array_agg(row_step)), array_send(array_agg(iteration)), array_send(array_agg(at)),
        string_agg(metrics::text, ',')
    from (select s.place, r.row_step, r.iteration, {_TIME} as at, r.metrics
        from unnest(%(places)s::bigint[], %(ids)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[])
            s (place, id, low, high)
        join lens_row r on r.stream_id = s.id and r.row_step between s.low and s.high
        order by s.place, r.row_step) rows group by place
""".encode()


class Reader:
    """One query's way to blocks and rows, on a connection in a transaction of one snapshot."""

    def __init__(
        self, connection: Connection, window: Window, metrics: Sequence[str], blocks: Mapping[int, Sequence[Header]]
    ) -> None:
        self.connection = connection
        self.window = window
        self._metrics = metrics
        self._blocks = blocks
        self._kept: dict[tuple[int, int], tuple[Frame, dict[str, tuple[Integers | None, Doubles]]]] = {}
        self._kept_values = 0

    def plan(self, place: int, stream: Stream, among: Range = ALL) -> list[Part]:
        """Locate a stream's points in the query's window and among some iterations, in the order of their steps."""
        found = []
        blocks = self._blocks.get(stream.id, ())
        for block in blocks:
            is_far = block.last_iteration < among.low or block.first_iteration > among.high
            if block.dirty:  # neither its times nor its iterations are known
                found.append(Part(place, stream, block.first_step, block.last_step))
            elif not is_far:
                found.append(Part(place, stream, block.first_step, block.last_step, block))
        if self.outside(stream) and stream.blocked_step != HIGHEST_STEP:
            first_step = LOWEST_STEP if stream.blocked_step is None else stream.blocked_step + 1
            found.append(Part(place, stream, first_step, HIGHEST_STEP))
        if not stream.own_iterations:  # steps are iterations
            found = [part if part.block else part.among(among) for part in found]
        return [part for part in found if part.first_step <= part.last_step]

    def outside(self, stream: Stream) -> int:
        """Count the rows of a stream that are to be read as rows; those of outdated blocks are."""
        anew = sum(block.rows for block in self._blocks.get(stream.id, ()) if block.dirty)
        return stream.rows - stream.blocked_rows + anew

    def expected(self, stream: Stream) -> float:
        """About how many points of a stream are in the query's window."""
        if not self.window.is_limited:
            return stream.points
        touched = sum(block.rows for block in self._blocks.get(stream.id, ()) if not block.dirty)
        return (touched + self.outside(stream)) * stream.points / max(1, stream.rows)

    def ends(self, stream: Stream) -> Iterable[tuple[int, int, int]]:
        """The first and last iteration and the number of rows of each of a stream's blocks and of its other rows."""
        clean = [block for block in self._blocks.get(stream.id, ()) if not block.dirty]
        yield from ((block.first_iteration, block.last_iteration, block.rows) for block in clean)
        yield stream.first_iteration, stream.last_iteration, self.outside(stream)

    def iteration_before_last(self, stream: Stream, count: int) -> int:
        """An iteration after which there are about `count` points of a stream or more; the lowest for all of them."""
        density = stream.points / max(1, stream.rows)
        found = 0.0
        for first, _, rows in sorted(self.ends(stream), reverse=True):
            found += rows * density
            if found >= count:
                return first
        return LOWEST_STEP

    def coarseness(self, stream: Stream, curve: Curve, max_points: int) -> int:
        """Of how many points of a stream the extremes are read for a chart of a curve."""
        return coarseness(self.expected(stream), max_points, is_large=curve.is_large)

    async def pieces(
        self, metric: str | None, parts: Iterable[Part], among: Range = ALL, *, part_of: Integers | None = None
    ) -> AsyncIterator[Series]:
        """The points of parts in pieces; None: the iterations themselves.

        `part_of`: for each stream (place), of how many points the extremes will do; of SUMMARY_POINTS a block's summary
        stands for the block, where all of it is in the window.
        """
        summaries: list[Part] = []
        blocks: list[Part] = []
        rows: list[Part] = []
        for part in parts:
            if part.block is None:
                rows.append(part)
            elif metric is None or among != ALL or not self.window.holds(part.block) or not part.block.ordered:
                blocks.append(part)  # one whose iterations go back may have its ends anywhere
            elif part_of is not None and (part_of[part.place] == SUMMARY_POINTS or is_rare(part.stream)):
                summaries.append(part)
            else:
                blocks.append(part)
        if metric is not None and part_of is not None:
            for low in range(0, len(summaries), _SUMMARIES_AT_ONCE):
                series, left = await self._summaries(metric, summaries[low : low + _SUMMARIES_AT_ONCE], part_of)
                yield series
                blocks += left
        for low in range(0, len(blocks), _BLOCKS_AT_ONCE):
            async for series in self._whole_blocks(metric, blocks[low : low + _BLOCKS_AT_ONCE]):
                yield self._thinned(series, among, part_of)
        async for series in self._rows(metric, rows, among):
            yield self._thinned(series, among, part_of)

    def _thinned(self, series: Series, among: Range, part_of: Integers | None) -> Series:
        found = series.between(*self.window, *among)
        if part_of is None or not found.size or part_of[found.streams[0]] == 1:
            return found
        return thin(found, int(part_of[found.streams[0]]))

    async def summaries_of(self, metric: str, parts: Sequence[Part]) -> list[Known]:
        """Return the summaries of those parts that are blocks and have the metric."""
        numbers = {(part.stream.id, part.last_step): number for number, part in enumerate(parts)}
        runs = [list(run) for _, run in groupby(parts, lambda part: part.stream.id)]
        cursor = await self.connection.execute(
            "select c.stream_id, c.last_step, c.points, c.total, c.summary"
            " from unnest(%s::bigint[], %s::bigint[], %s::bigint[]) r (id, low, high) join lens_column c"
            " on c.stream_id = r.id and c.metric = %s and c.last_step between r.low and r.high",
            [
                [run[0].stream.id for run in runs],
                [run[0].last_step for run in runs],
                [run[-1].last_step for run in runs],
                metric,
            ],
            binary=True,
        )
        found = [Known(numbers.get((row[0], row[1]), -1), *row[2:]) for row in await cursor.fetchall()]
        return [known for known in found if known.number >= 0]

    async def _summaries(self, metric: str, parts: Sequence[Part], part_of: Integers) -> tuple[Series, list[Part]]:
        """The summaries of coarse streams, of others those that hold all points; the parts to be read whole."""
        found: list[Known] = []
        left = []
        for known in await self.summaries_of(metric, parts):
            part = parts[known.number]
            if part_of[part.place] == SUMMARY_POINTS or len(known.summary) == POINT_BYTES * known.points:
                found.append(known)
            else:
                left.append(part)
        places = [parts[known.number].place for known in found]
        return unpack_summaries([known.summary for known in found], [known.points for known in found], places), left

    async def _whole_blocks(self, metric: str | None, parts: Sequence[Part]) -> AsyncIterator[Series]:
        """All points of a few blocks."""
        columns, join = "null, null", ""
        if metric is not None:
            columns = 'c.positions, c."values"'
            join = " join lens_column c on c.stream_id = k.stream_id and c.metric = %(m)s and c.last_step = k.last_step"
        ids, lasts = _keys(parts)
        cursor = await self.connection.execute(
            f"select k.place - 1, b.rows, b.steps, b.iterations, b.times, {columns}"
            " from unnest(%(ids)s::bigint[], %(lasts)s::bigint[]) with ordinality k (stream_id, last_step, place)"
            f" join lens_block b on b.stream_id = k.stream_id and b.last_step = k.last_step{join} order by 1".encode(),
            {"ids": ids, "lasts": lasts, "m": metric},
            binary=True,
        )
        for number, count, steps, iterations, times, positions, values in await cursor.fetchall():
            own_steps = unpack_spaced(steps, count)
            own_iterations = own_steps if iterations is None else unpack_spaced(iterations, count)
            frame = Frame(own_steps, own_iterations, unpack_spaced(times, count))
            found = own_iterations.astype(float) if values is None else unpack_doubles(values)
            yield frame.make_series(unpack_positions(positions), found, parts[number].place)

    async def _rows(self, metric: str | None, parts: Sequence[Part], among: Range) -> AsyncIterator[Series]:
        """Points of rows: of many streams with few rows at once, of a stream with many in portions."""
        if metric is not None and among == ALL and await self._keeps(parts):
            for part in parts:
                frame, columns = self._kept[part.stream.id, part.first_step]
                if metric in columns:
                    yield frame.make_series(*columns[metric], part.place)
            return
        together: list[Part] = []
        rows = 0
        for number, part in enumerate(parts):
            outside = self.outside(part.stream)
            if outside > _ROWS_AT_ONCE:
                async for series in self._portions(metric, part, among):
                    yield series
            else:
                together.append(part)
                rows += outside
            if together and (rows > _ROWS_AT_ONCE or number == len(parts) - 1):
                async for series in self._rows_together(metric, together, among):
                    yield series
                together, rows = [], 0

    async def _rows_together(self, metric: str | None, parts: Sequence[Part], among: Range) -> AsyncIterator[Series]:
        """All points of rows of a few parts."""
        cursor = await self.connection.execute(
            f"select place, {_SENT} from (select s.place, r.row_step as step, r.iteration as n, {_TIME} as at,"
            f" {_value_expression(metric)} as value"
            " from unnest(%(places)s::bigint[], %(ids)s::bigint[], %(firsts)s::bigint[],"
            " %(lasts)s::bigint[]) s (place, id, low, high)"
            " join lens_row r on r.stream_id = s.id and r.row_step between s.low and s.high"
            " where r.iteration between %(low)s and %(high)s) rows group by place order by place".encode(),
            {**_bounds(parts), "metric": metric, "low": among.low, "high": among.high},
            binary=True,
        )
        for place, *columns, values in await cursor.fetchall():
            yield Series.from_rows(map(sent_integers, columns), sent_doubles(values), place).by_step()

    async def _portions(self, metric: str | None, part: Part, among: Range) -> AsyncIterator[Series]:
        """The points of a stream's rows, portion by portion; the transaction's snapshot keeps them together."""
        first = part.first_step
        while True:
            cursor = await self.connection.execute(
                f"select count(*), max(step), {_SENT} from (select r.row_step as step, r.iteration as n,"
                f" {_TIME} as at, {_value_expression(metric)} as value from lens_row r where r.stream_id = %(id)s"
                " and r.row_step between %(first)s and %(last)s and r.iteration between %(low)s and %(high)s"
                " order by r.row_step limit %(limit)s) rows".encode(),
                {
                    **{"id": part.stream.id, "first": first, "last": part.last_step, "metric": metric},
                    **{"low": among.low, "high": among.high, "limit": _ROWS_AT_ONCE},
                },
                binary=True,
            )
            ((count, last_step, *columns, values),) = await cursor.fetchall()
            yield Series.from_rows(map(sent_integers, columns), sent_doubles(values), part.place).by_step()
            if count < _ROWS_AT_ONCE or last_step >= part.last_step:
                return
            first = last_step + 1

    async def _keeps(self, parts: Sequence[Part]) -> bool:
        """Whether all metrics of these rows are there: read now where many metrics are asked for, and few rows."""
        missing = [part for part in parts if (part.stream.id, part.first_step) not in self._kept]
        values = sum(self.outside(part.stream) for part in missing) * len(self._metrics)
        if len(self._metrics) < _MANY_METRICS or self._kept_values + values > _MOST_KEPT_VALUES:
            return False
        self._kept_values += values
        if missing:
            found = {place: Rows() for place in range(len(missing))}
            bounds = {**_bounds(missing), "places": list(found)}
            cursor = await self.connection.execute(_WHOLE_ROWS, bounds, binary=True)
            for place, *columns in await cursor.fetchall():
                found[place].append_rows(*columns)
            for part, rows in zip(missing, found.values(), strict=True):
                self._kept[part.stream.id, part.first_step] = (rows.frame(), rows.columns())
        return True

    async def count_points(self, metric: str | None, streams: Sequence[Stream]) -> int:
        """Count the points of a metric in the window; None: of the iterations themselves.

        Without a window the figures know it. Of blocks that are wholly in the window their own figures are added up;
        others are read.
        """
        if not self.window.is_limited:
            return sum(stream.points for stream in streams)
        parts = [part for place, stream in enumerate(streams) for part in self.plan(place, stream)]
        inside = [part for part in parts if part.block is not None and self.window.holds(part.block)]
        edges = [part for part in parts if part.block is None or not self.window.holds(part.block)]
        count = sum([series.size async for series in self.pieces(metric, edges)])
        if metric is None:
            return count + sum(part.block.rows for part in inside if part.block is not None)
        cursor = await self.connection.execute(
            "select coalesce(sum(c.points), 0)::bigint from unnest(%s::bigint[], %s::bigint[]) b (stream_id, last_step)"
            " join lens_column c on c.stream_id = b.stream_id and c.metric = %s and c.last_step = b.last_step",
            [*_keys(inside), metric],
        )
        return count + int((await cursor.fetchall())[0][0])


def is_rare(stream: Stream) -> bool:
    """Whether summaries hold about all points of a stream: a block's steps and times are many times as much."""
    return 2 * stream.points * BLOCK_ROWS <= SUMMARY_POINTS * stream.rows


def _value_expression(metric: str | None) -> str:
    return "r.iteration" if metric is None else "r.metrics ->> %(metric)s"


def _keys(parts: Sequence[Part]) -> tuple[list[int], list[int]]:
    return [part.stream.id for part in parts], [part.last_step for part in parts]


def _bounds(parts: Sequence[Part]) -> dict[str, Any]:
    ids, lasts = _keys(parts)
    return {
        "places": [part.place for part in parts],
        "ids": ids,
        "firsts": [part.first_step for part in parts],
        "lasts": lasts,
    }
