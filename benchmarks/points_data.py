"""Points for benchmarks/points.py that would take too long to send: put into the databases as the sink writes them.

What is in them is measured afterwards by questions only. PostgreSQL makes its blocks out of rows; those of the many
ranks, who all log the same, are copies of the first one's, without their rows, which is in PostgreSQL's favour.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import psycopg
from lens_plugins.sinks.postgresql.clickhouse.client import ClickHouse
from lens_plugins.sinks.postgresql.clickhouse.native import Column, Texts, encode_block
from lens_plugins.sinks.postgresql.clickhouse.ranges import ranges_of
from lens_plugins.sinks.postgresql.clickhouse.schema import COLUMNS, RANGE_COLUMNS
from lens_plugins.sinks.postgresql.clickhouse.versions import bits_of
from lens_plugins.sinks.postgresql.clickhouse.writing import Blocks, insert_blocks
from lens_plugins.sinks.postgresql.compacting import compact_stream
from lens_plugins.sinks.postgresql.plugin import PostgreSQL
from lens_plugins.sinks.postgresql.rank_summaries import Summaries, Summary, write_summaries
from lens_plugins.sinks.postgresql.series import Doubles, Integers

from benchmarks.query_data import SPIKE, load_run, make_blocks, note_rows, planted, stream_of

FIRST_US = 1_700_000_000_000_000
SPIKED = "m7"
_VERSIONS_AT_ONCE = 500_000
_TABLES_OF_BLOCKS = ("lens_block", "lens_column")


async def load_long_run(dsn: str, uid: str, steps: int, clickhouse: ClickHouse | None) -> None:
    """A run of one metric that has the planted spikes."""
    if clickhouse is None:
        await asyncio.to_thread(load_run, dsn, uid, steps, metrics=[7])
        await asyncio.to_thread(make_blocks, dsn)
        return
    with psycopg.connect(dsn, autocommit=True) as connection:
        stream, _ = stream_of(connection, uid, [7])
        note_rows(connection, {"stream": stream, "uid": uid, "last": steps - 1})
    await _insert_long_run(clickhouse, stream, steps)


async def _insert_long_run(clickhouse: ClickHouse, stream: int, steps: int) -> None:
    spikes = np.array(planted(steps))
    for first in range(0, steps, _VERSIONS_AT_ONCE):
        step = np.arange(first, min(first + _VERSIONS_AT_ONCE, steps))
        values = np.where(np.isin(step, spikes), SPIKE, np.sin(step / 1e4))
        times = FIRST_US + step * 1_000_000 + step * 104_729 % 1000
        await insert_points(clickhouse, SPIKED, np.full(step.size, stream), step, times, values)


async def insert_points(
    clickhouse: ClickHouse, metric: str, streams: Integers, steps: Integers, times: Integers, values: Doubles
) -> None:
    """Insert points of one metric, in the order of streams and steps, with their ranges."""
    size = steps.size
    columns: dict[str, Column] = {
        "stream": streams.astype(np.uint64),
        "step": steps.astype(np.int64),
        "sequence": steps.astype(np.int64),
        "lag": (times - steps).astype(np.int64),
        "received_us": np.zeros(size, np.int64),
        "metric": Texts([metric], np.zeros(size, np.uint32)),
        "bits": bits_of(values),
        "spool": np.zeros(size, np.uint64),
        "position": np.zeros(size, np.uint64),
    }
    ranges = ranges_of(columns)
    found = len(ranges["stream"])
    blocks = Blocks(encode_block(COLUMNS, columns, size), list(columns), encode_block(RANGE_COLUMNS, ranges, found))
    await insert_blocks(clickhouse, blocks, f"benchmark:{uuid.uuid4()}")


async def load_ranks(store: PostgreSQL, uid: str, steps: int, clickhouse: ClickHouse | None) -> None:
    """More steps of ranks that have sent their first one: all of them log the same of one metric."""
    step = np.arange(1, steps)
    values = np.sin(step / 100)
    async with await store.database.connect_when_ready(timeout_seconds=0) as connection:
        cursor = await connection.execute(
            "select s.id, s.subject_id from lens_stream s join lens_subject u on u.id = s.subject_id"
            " where u.workload_uid = %s order by s.id",
            [uid],
        )
        found = await cursor.fetchall()
        streams, subject = [int(row[0]) for row in found], int(found[0][1])
        await _note_steps(connection, subject, streams, steps)
        if clickhouse is None:
            await _fill_first(connection, streams[0], uid, steps)
            await _copy_blocks(connection, streams)
        else:
            at_once = max(1, _VERSIONS_AT_ONCE // steps)
            for low in range(0, len(streams), at_once):
                some = streams[low : low + at_once]
                every = np.tile(step, len(some))
                await insert_points(
                    *(clickhouse, SPIKED, np.repeat(np.array(some), step.size), every),
                    *(FIRST_US + every * 1_000_000, np.tile(values, len(some))),
                )
        cursor = await connection.execute("select id from lens_curve where subject_id = %s and is_whole", [subject])
        ((curve_id,),) = await cursor.fetchall()
        await write_summaries(connection, int(curve_id), _summaries(len(streams), step.tolist(), values.tolist()))


def _summaries(ranks: int, steps: Sequence[int], values: Sequence[float]) -> Summaries:
    return {
        (0, SPIKED, step): Summary(
            *(ranks, ranks, value * ranks, value, value),
            *(FIRST_US + step * 1_000_000, FIRST_US + step * 1_000_000, step, 0, value),
        )
        for step, value in zip(steps, values, strict=True)
    }


async def _note_steps(connection: Any, subject: int, streams: Sequence[int], steps: int) -> None:
    last_us = FIRST_US + (steps - 1) * 1_000_000
    for statement, count in (
        ("update lens_catalogue set points = %(count)s where stream_id = any(%(streams)s)", steps),
        (
            "update lens_stream set rows = %(count)s, last_step = %(last)s, last_iteration = %(last)s,"
            " last_seen_us = %(us)s where id = any(%(streams)s)",
            steps,
        ),
        (
            "update lens_subject set rows = %(count)s, last_iteration = %(last)s, last_seen_us = %(us)s"
            " where id = %(subject)s",
            steps * len(streams),
        ),
    ):
        await connection.execute(
            statement,
            {"count": count, "last": steps - 1, "us": last_us, "streams": [*streams], "subject": subject},
        )


async def _fill_first(connection: Any, stream: int, uid: str, steps: int) -> None:
    await connection.execute(
        "insert into lens_row (stream_id, row_step, received_us, sequence, event_time_us, iteration, rank,"
        " workload_uid, data_source, metrics) select %s, step, 0, step, %s + step * 1000000, step, null, %s, 'wandb',"
        f" jsonb_build_object('{SPIKED}', sin(step / 100.0)) from generate_series(1::bigint, %s) step",
        [stream, FIRST_US, uid, steps - 1],
    )
    await compact_stream(connection, stream, partial=True)


async def _copy_blocks(connection: Any, streams: Sequence[int]) -> None:
    first, others = streams[0], [*streams[1:]]
    for table in _TABLES_OF_BLOCKS:
        cursor = await connection.execute(
            "select column_name from information_schema.columns where table_name = %s and column_name <> 'stream_id'"
            " order by ordinal_position",
            [table],
        )
        names = ", ".join(f'"{name}"' for (name,) in await cursor.fetchall())
        await connection.execute(
            f"insert into {table} (stream_id, {names}) select other, {names} from {table},"
            " unnest(%s::bigint[]) other where stream_id = %s",
            [others, first],
        )
    await connection.execute(
        "update lens_stream s set blocked_rows = f.blocked_rows, blocked_step = f.blocked_step from lens_stream f"
        " where f.id = %s and s.id = any(%s)",
        [first, others],
    )
    for table in _TABLES_OF_BLOCKS:
        await connection.execute(f"analyze {table}")
