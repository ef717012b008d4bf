"""The figures kept beside the rows: of streams, of the catalogue, of subjects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .encoding import StreamChange
from .identity import Connection
from .text import array_of_numbers
from .value_summaries import ValueSummary

_IS_NEWER = "(excluded.last_iteration, excluded.last_us) >= (known.last_iteration, known.last_us)"
_UPDATE_CATALOGUE = f"""
    insert into lens_catalogue as known
        (stream_id, metric, points, has_summary, lowest, highest, last_value, last_us, last_iteration)
    select * from unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bool[], %s::float8[], %s::float8[], %s::float8[],
        %s::bigint[], %s::bigint[])
    on conflict (stream_id, metric) do update set points = known.points + excluded.points,
        has_summary = known.has_summary and excluded.has_summary,
        lowest = least(known.lowest, excluded.lowest), highest = greatest(known.highest, excluded.highest),
        last_value = case when {_IS_NEWER} then excluded.last_value else known.last_value end,
        last_us = case when {_IS_NEWER} then excluded.last_us else known.last_us end,
        last_iteration = case when {_IS_NEWER} then excluded.last_iteration else known.last_iteration end
""".encode()


async def update_streams(connection: Connection, changes: Mapping[int, StreamChange]) -> None:
    """Figures of the streams. Not empty means that every figure of a change is set."""
    changed = [(stream_id, change) for stream_id, change in changes.items() if not change.is_empty]
    if not changed:
        return
    await connection.execute(
        "update lens_stream s set rows = s.rows + c.new_rows, last_step = greatest(s.last_step, c.last_step),"
        " own_iterations = s.own_iterations or c.own_iterations,"
        " first_iteration = least(s.first_iteration, c.first_iteration),"
        " last_iteration = greatest(s.last_iteration, c.last_iteration),"
        " target_iteration = greatest(s.target_iteration, c.target_iteration),"
        " first_seen_us = least(s.first_seen_us, c.first_seen_us),"
        " last_seen_us = greatest(s.last_seen_us, c.last_seen_us), late_step = least(s.late_step, c.late_step),"
        " late_version = s.late_version + case when c.late_step is null then 0 else 1 end"
        " from unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bool[], %s::bigint[], %s::bigint[], %s::bigint[],"
        " %s::bigint[], %s::bigint[], %s::bigint[]) c (id, new_rows, last_step, own_iterations, first_iteration,"
        " last_iteration, target_iteration, first_seen_us, last_seen_us, late_step) where s.id = c.id",
        [
            array_of_numbers(stream_id for stream_id, _ in changed),
            array_of_numbers(change.new_rows for _, change in changed),
            array_of_numbers(change.last_step for _, change in changed),
            [change.own_iterations for _, change in changed],
            array_of_numbers(change.first_iteration for _, change in changed),
            array_of_numbers(change.last_iteration for _, change in changed),
            array_of_numbers(change.target_iteration for _, change in changed),
            array_of_numbers(change.first_seen_us for _, change in changed),
            array_of_numbers(change.last_seen_us for _, change in changed),
            array_of_numbers(min(change.late_steps, default=None) for _, change in changed),
        ],
    )


async def update_catalogue(connection: Connection, changes: Mapping[int, StreamChange]) -> None:
    """Points and summaries of the metrics of streams."""
    entries = [
        (stream_id, name, change.points[name], name not in change.unsure, change.values.get(name) or ValueSummary())
        for stream_id, change in changes.items()
        for name in {**change.points, **dict.fromkeys(change.unsure)}
    ]
    if not entries:
        return
    ids, names, points, are_sure, summaries = map(list, zip(*entries, strict=True))
    fields: tuple[Iterable[float | None], ...] = (
        (summary.lowest for summary in summaries),
        (summary.highest for summary in summaries),
        (summary.last for summary in summaries),
        (summary.last_us for summary in summaries),
        (summary.last_iteration for summary in summaries),
    )
    await connection.execute(
        _UPDATE_CATALOGUE,
        [array_of_numbers(ids), names, array_of_numbers(points), are_sure, *map(array_of_numbers, fields)],
    )


async def touch_subjects(
    connection: Connection, changes: Mapping[int, StreamChange], subjects: Mapping[int, int], seen: Mapping[int, int]
) -> set[int]:
    """The figures of the subjects, last of all: rows by stream (`subjects`: stream to subject), and `seen` (subject
    to time) for those of which there was something else. Those of them that have curves over ranks are answered."""
    totals: dict[int, list[Any]] = {}
    for stream_id, change in changes.items():
        if change.is_empty:
            continue
        total = totals.setdefault(subjects[stream_id], [0, None, None, None])
        total[0] += change.new_rows
        total[1] = change.last_iteration if total[1] is None else max(total[1], change.last_iteration)
        total[2] = change.first_seen_us if total[2] is None else min(total[2], change.first_seen_us)
        total[3] = change.last_seen_us if total[3] is None else max(total[3], change.last_seen_us)
    for subject_id, time_us in seen.items():
        total = totals.setdefault(subject_id, [0, None, None, None])
        total[2] = time_us if total[2] is None else min(total[2], time_us)
        total[3] = time_us if total[3] is None else max(total[3], time_us)
    if not totals:
        return set()
    ordered = sorted(totals)
    columns = [[totals[subject_id][column] for subject_id in ordered] for column in range(4)]
    cursor = await connection.execute(
        "select id, has_curves from lens_subject where id = any(%s) order by id for no key update", [ordered]
    )
    with_curves = {subject_id for subject_id, has_curves in await cursor.fetchall() if has_curves}
    await connection.execute(
        "update lens_subject s set rows = s.rows + c.rows, version = s.version + 1,"
        " last_iteration = greatest(s.last_iteration, c.last_iteration),"
        " first_seen_us = least(s.first_seen_us, c.first_seen_us),"
        " last_seen_us = greatest(s.last_seen_us, c.last_seen_us)"
        " from unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])"
        " c (id, rows, last_iteration, first_seen_us, last_seen_us) where s.id = c.id",
        [ordered, *columns],
    )
    return with_curves
