"""Makes the coarser levels of a stream's blocks: a span holds neighbours of the level below.

Whoever makes a stream's blocks makes its spans after them, under the same advisory lock, so that nobody else changes
what is below. A span whose blocks are made anew is marked with them and made anew over the same range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count, groupby
from typing import NamedTuple

import psycopg

from .blocks import LOWEST_STEP, PARTIAL_ROWS, SPAN_PARTS, coarser, pack_summary, summary_series
from .identity import Connection

_HIGHEST_STEP = 2**63 - 1
_COPY = b"""copy lens_span_column (stream_id, level, metric, last_step, summary) from stdin (format binary)"""
# Streams that have blocks enough beyond their spans, or spans to be made anew: a condition on lens_stream s. Most are
# short: those are not looked at.
_ARE_DUE = (
    "(s.blocked_rows >= {rows} and (exists (select from lens_span p where p.stream_id = s.id and p.dirty)"
    " or exists (select from lens_block b where b.stream_id = s.id and b.last_step > coalesce((select max(p.last_step)"
    " from lens_span p where p.stream_id = s.id and p.level = 2), {lowest}) offset {parts} - 1)))"
)


class _Range(NamedTuple):
    """Steps that spans are made of; `is_old`: there is a span of just these, which is to be made anew."""

    first_step: int
    last_step: int
    is_old: bool


class _Span(NamedTuple):
    """The last steps of what it holds, and the summary of each of its metrics."""

    parts: Sequence[int]
    summaries: Sequence[tuple[str, bytes]]


def spans_are_due() -> str:
    """The condition, on lens_stream s, for spans to be made."""
    return _ARE_DUE.format(rows=SPAN_PARTS * PARTIAL_ROWS, lowest=LOWEST_STEP, parts=SPAN_PARTS)


async def make_spans(connection: Connection, stream_id: int) -> int:
    """Make all spans of a stream that are due, level after level; how many were made."""
    made = 0
    for level in count(2):
        ranges = await _ranges(connection, stream_id, level)
        found = [await _make(connection, stream_id, level, one) for one in ranges]
        made += sum(found)
        if len(ranges) == 1 and ranges[0].first_step == LOWEST_STEP and not found[0]:
            return made  # there is nothing at this level, so that there is nothing to make the next one of
    return made


async def mark_spans(connection: Connection, stream_id: int, level: int, first_step: int, last_step: int) -> None:
    """What is between these steps at a level is made anew: so will be all spans that hold it."""
    await connection.execute(
        "update lens_span set dirty = true where stream_id = %s and level > %s and last_step >= %s and first_step <= %s"
        " and not dirty",
        [stream_id, level, first_step, last_step],
    )


async def _ranges(connection: Connection, stream_id: int, level: int) -> list[_Range]:
    """The spans of a level that are to be made anew, then what comes after its last."""
    cursor = await connection.execute(
        "select first_step, last_step, dirty from lens_span where stream_id = %(id)s and level = %(level)s"
        " and (dirty or last_step = (select max(last_step) from lens_span where stream_id = %(id)s"
        " and level = %(level)s)) order by last_step",
        {"id": stream_id, "level": level},
    )
    known = await cursor.fetchall()
    old = [_Range(first_step, last_step, is_old=True) for first_step, last_step, dirty in known if dirty]
    return [*old, _Range(known[-1][1] + 1 if known else LOWEST_STEP, _HIGHEST_STEP, is_old=False)]


async def _make(connection: Connection, stream_id: int, level: int, range_: _Range) -> int:
    """Make the spans of a range: at its end all that are complete, one by one; in place of an old one all at once."""
    cursor = await connection.execute(
        "select last_step from lens_level where stream_id = %s and level = %s and first_step >= %s and last_step <= %s"
        " order by last_step",
        [stream_id, level - 1, range_.first_step, range_.last_step],
    )
    groups = _groups([row[0] for row in await cursor.fetchall()], with_rest=range_.is_old)
    for together in [groups] if range_.is_old else [[group] for group in groups]:
        spans = [await _build(connection, stream_id, level, group) for group in together]
        await _put(connection, stream_id, level, range_, spans)
    return len(groups)


def _groups(steps: Sequence[int], *, with_rest: bool) -> list[Sequence[int]]:
    """Neighbours that become a span; what is left over goes to the last one, or waits for more."""
    whole = range(0, len(steps) - SPAN_PARTS + 1, SPAN_PARTS)
    groups = [steps[low : low + SPAN_PARTS] for low in whole]
    if with_rest and steps:
        groups[-1:] = [steps[SPAN_PARTS * max(0, len(groups) - 1) :]]
    return groups


async def _build(connection: Connection, stream_id: int, level: int, parts: Sequence[int]) -> _Span:
    cursor = await connection.execute(
        "select metric, summary from lens_level_column where stream_id = %s and level = %s and last_step = any(%s)"
        " order by metric, last_step",
        [stream_id, level - 1, parts],
        binary=True,
    )
    return _Span(parts, await asyncio.to_thread(_summaries, await cursor.fetchall(), level))


def _summaries(found: Sequence[tuple[str, bytes]], level: int) -> list[tuple[str, bytes]]:
    return [
        (metric, pack_summary(coarser(summary_series([summary for _, summary in group]), level - 1, level)))
        for metric, group in groupby(found, lambda one: one[0])
    ]


async def _put(connection: Connection, stream_id: int, level: int, range_: _Range, spans: Sequence[_Span]) -> None:
    """Put spans in place of what there was of their range, unless what they hold was removed meanwhile."""
    async with connection.transaction() as transaction:
        await connection.execute("select from lens_stream where id = %s for no key update", [stream_id])
        if range_.is_old:
            await connection.execute(
                "delete from lens_span where stream_id = %s and level = %s and last_step = %s",
                [stream_id, level, range_.last_step],
            )
            await mark_spans(connection, stream_id, level, range_.first_step, range_.last_step)
        for span in spans:
            if not await _insert(connection, stream_id, level, span):
                raise psycopg.Rollback(transaction)


async def _insert(connection: Connection, stream_id: int, level: int, span: _Span) -> bool:
    cursor = await connection.execute(
        "insert into lens_span (stream_id, level, last_step, first_step, rows, first_us, last_us)"
        " select stream_id, %(level)s, max(last_step), min(first_step), sum(rows), min(first_us), max(last_us)"
        " from lens_level where stream_id = %(id)s and level = %(level)s - 1 and last_step = any(%(parts)s)"
        " group by stream_id having count(*) = %(count)s",
        {"id": stream_id, "level": level, "parts": span.parts, "count": len(span.parts)},
    )
    if not cursor.rowcount:
        return False
    async with connection.cursor() as writing, writing.copy(_COPY) as copy:
        copy.set_types(["int8", "int4", "text", "int8", "bytea"])
        for metric, summary in span.summaries:
            await copy.write_row((stream_id, level, metric, span.parts[-1], summary))
    return True
