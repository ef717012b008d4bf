"""The sequence of news: which rows each batch wrote, noted in its transaction and kept for some minutes.

A live view reads what was noted since its cursor, so that it costs what is new, however many streams a job has.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .encoding import StreamChange
from .identity import Connection
from .text import array_of_numbers

KEPT_SECONDS = 180
MOST_RANGES = 500  # noted of one batch and subject
NOTES_AT_ONCE = 20
# The arrays of notes are of different lengths, which PostgreSQL has in no array of arrays: each comes as a text.
_INSERT = b"""
    insert into lens_news (subject_id, at_us, streams, first_steps, last_steps, rows, rows_left_out, has_late)
    select id, %s, streams::bigint[], first_steps::bigint[], last_steps::bigint[], rows::bigint[], left_out, has_late
    from unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bool[])
        n (id, streams, first_steps, last_steps, rows, left_out, has_late)
"""
_SUBJECTS = "(select subject_id from lens_name where uid = %(uid)s)"


class StepRange(NamedTuple):
    """Steps of a stream, both ends included, with so many rows that are new or changed."""

    stream_id: int
    first_step: int
    last_step: int
    rows: int


class Note(NamedTuple):
    """The rows that a batch wrote about a subject; `has_late`: some of them stand before others of their stream."""

    id: int
    ranges: list[StepRange]
    rows_left_out: int
    has_late: bool


async def note_news(
    connection: Connection, changes: Mapping[int, StreamChange], subjects: Mapping[int, int], now_us: int
) -> None:
    """Note what a batch wrote, in its transaction; `subjects`: stream to subject."""
    by_subject: dict[int, dict[int, StreamChange]] = {}
    for stream_id, change in sorted(changes.items()):
        if not change.is_empty:
            by_subject.setdefault(subjects[stream_id], {})[stream_id] = change
    notes = []
    for subject_id, written in by_subject.items():
        kept = ranges_of(written)[:MOST_RANGES]
        total = sum(change.new_rows + change.changed_rows for change in written.values())
        notes.append(
            (
                subject_id,
                *map(array_of_numbers, zip(*kept, strict=True)),
                total - sum(one.rows for one in kept),
                any(change.late_steps for change in written.values()),
            )
        )
    if notes:
        await connection.execute(_INSERT, [now_us, *map(list, zip(*notes, strict=True))])


def ranges_of(changes: Mapping[int, StreamChange]) -> list[StepRange]:
    """The rows of streams as ranges: first those after the last row there was, then single late ones, newest first."""
    ends = []
    late = []
    for stream_id, change in changes.items():
        rows = change.new_rows + change.changed_rows - len(change.late_steps)
        if rows:
            ends.append(StepRange(stream_id, change.first_new_step, change.last_step, rows))
        steps = heapq.nlargest(MOST_RANGES, change.late_steps)
        late += [StepRange(stream_id, step, step, 1) for step in steps]
    return [*ends, *sorted(late, key=lambda one: -one.last_step)]


async def forget_old_news(connection: Connection, now_us: int) -> None:
    """Remove notes that are older than a cursor may be, but for those that another daemon is removing."""
    await connection.execute(
        "delete from lens_news where id in"
        " (select id from lens_news where at_us < %s order by id for update skip locked)",
        [now_us - KEPT_SECONDS * 1_000_000],
    )


async def newest_notes(connection: Connection, uid: str, count: int) -> list[int]:
    """The numbers of the newest notes about a workload."""
    cursor = await connection.execute(
        f"select id from lens_news where subject_id in {_SUBJECTS} order by id desc limit %(count)s".encode(),
        {"uid": uid, "count": count},
    )
    return [int(row[0]) for row in await cursor.fetchall()]


async def notes_since(connection: Connection, uid: str, after: int, shown: Sequence[int]) -> list[Note]:
    """The next notes about a workload that were not shown yet, at most NOTES_AT_ONCE."""
    cursor = await connection.execute(
        "select id, streams, first_steps, last_steps, rows, rows_left_out, has_late from lens_news"
        f" where subject_id in {_SUBJECTS} and id > %(after)s and id <> all(%(shown)s::bigint[])"
        " order by id limit %(limit)s".encode(),
        {"uid": uid, "after": after, "shown": list(shown), "limit": NOTES_AT_ONCE},
    )
    return [
        Note(number, list(map(StepRange._make, zip(*columns, strict=True))), left_out, has_late)
        for number, *columns, left_out, has_late in await cursor.fetchall()
    ]
