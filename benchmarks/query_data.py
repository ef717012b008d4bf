"""Runs for benchmarks/query.py, put into a database by SQL: rows as the sink writes them, and MLflow's own table."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import psycopg
from lens_plugins.sinks.postgresql.blocks import BLOCK_ROWS
from lens_plugins.sinks.postgresql.compacting import compact_stream

METRICS = 20
SPIKE = 1_000_000.0
_FIRST_SECOND = 1_700_000_000
_PIECE_STEPS = 1_000_000


def planted(steps: int, count: int = 40) -> list[int]:
    """Steps at which metric m7 is out of the ordinary for one step: one in each of `count` parts."""
    chance = random.Random(11)
    part = steps // count
    return [number * part + chance.randrange(part // 4, part // 2) for number in range(count)]


def load_run(
    dsn: str,
    uid: str,
    steps: int,
    *,
    metrics: Sequence[int] = range(METRICS),
    ends: float = float("inf"),
    piece: int = _PIECE_STEPS,
) -> bool:
    """A run under a workload, as rows, m7 with the planted spikes; false when the time was over before all was there.

    It goes on after the last piece that is there. `ends`: of the monotonic clock.
    """
    values = " || ', ' || ".join(f"""'"m{number}": ' || {_value_of(number)}""" for number in metrics)
    with psycopg.connect(dsn, autocommit=True) as connection:
        stream, first = stream_of(connection, uid, metrics)
        while first < steps:
            if time.monotonic() > ends:
                return False
            last = min(first + piece, steps) - 1
            _load_piece(connection, {"stream": stream, "uid": uid, "first": first, "last": last}, steps, values)
            first = last + 1
        connection.execute("analyze lens_row")
    return True


def _value_of(number: int) -> str:
    if number == 7:
        return "(case when step = any(%(spikes)s) then %(spike)s else sin(step / 1e4) end)"
    return f"(trunc(random() * {number + 1}e6) / 1e6)"


def stream_of(connection: psycopg.Connection[tuple[object, ...]], uid: str, metrics: Sequence[int]) -> tuple[int, int]:
    """The run's stream, made where there is none, and how many rows it has."""
    found = connection.execute(
        "select s.id, s.rows from lens_stream s join lens_subject u on u.id = s.subject_id where u.workload_uid = %s",
        [uid],
    ).fetchone()
    if found is not None:
        return int(str(found[0])), int(str(found[1]))
    first_us = _FIRST_SECOND * 10**6
    made = connection.execute(
        "with subject as (insert into lens_subject (cluster, key, workload_uid, pod_uid, namespace, pod_name, name,"
        " first_seen_us, version) values ('default', 'workload:' || %(uid)s, %(uid)s, '', '', '', %(uid)s, %(us)s, 1)"
        " returning id), stream as (insert into lens_stream (subject_id, data_source, run_id, attempt, rank, pod_uid,"
        " first_iteration, first_seen_us) select id, 'wandb', 'run', 1, -1, '', 0, %(us)s from subject returning id),"
        " metrics as (insert into lens_catalogue select id, 'm' || n, 0 from stream, unnest(%(metrics)s::int[]) n)"
        " select id from stream",
        {"uid": uid, "us": first_us, "metrics": [*metrics]},
    ).fetchone()
    assert made is not None
    return int(str(made[0])), 0


def _load_piece(
    connection: psycopg.Connection[tuple[object, ...]], piece: dict[str, object], steps: int, values: str
) -> None:
    """Some of a run's rows and the figures of all so far, in one transaction."""
    with connection.transaction():
        connection.execute(
            "insert into lens_row (stream_id, row_step, received_us, sequence, event_time_us, iteration, workload_uid,"
            " data_source, metrics) select %(stream)s, step, 0, step,"
            f" {_FIRST_SECOND} * 1000000::bigint + step * 1000000::bigint + (random() * 1000)::int, step, %(uid)s,"
            f" 'wandb', ('{{' || {values} || '}}')::jsonb"
            " from generate_series(%(first)s::bigint, %(last)s) step".encode(),
            {**piece, "spikes": planted(steps), "spike": SPIKE},
        )
        note_rows(connection, piece)


def note_rows(connection: psycopg.Connection[tuple[object, ...]], piece: dict[str, object]) -> None:
    """The figures of the stream `stream` of the workload `uid`, whose steps are those up to `last`."""
    last_us = f"({_FIRST_SECOND} + %(last)s) * 1000000::bigint"
    for statement in (
        "update lens_catalogue set points = %(last)s + 1 where stream_id = %(stream)s",
        "update lens_stream set rows = %(last)s + 1, last_step = %(last)s, last_iteration = %(last)s,"
        f" last_seen_us = {last_us} where id = %(stream)s",
        "update lens_subject set rows = %(last)s + 1, last_iteration = %(last)s,"
        f" last_seen_us = {last_us} where workload_uid = %(uid)s",
    ):
        connection.execute(statement.encode(), piece)


def make_blocks(dsn: str, ends: float = float("inf")) -> bool:
    """Make all blocks that the background would make; false when the time was over before. `ends`: see `load_run`."""

    async def work() -> None:
        connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
        async with connection:
            cursor = await connection.execute(
                "select id from lens_stream where rows - blocked_rows >= %s", [BLOCK_ROWS]
            )
            for (stream_id,) in await cursor.fetchall():
                await compact_stream(connection, stream_id, partial=False)
            await connection.execute("analyze lens_block")
            await connection.execute("analyze lens_column")

    try:
        asyncio.run(asyncio.wait_for(work(), max(1.0, ends - time.monotonic())))
    except TimeoutError:
        return False
    return True


def until_blocks_are_made(dsn: str) -> None:
    """Wait until no stream has rows enough for one more block."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute("select from lens_stream where rows - blocked_rows >= %s", [BLOCK_ROWS]).rowcount:
            time.sleep(0.05)


def load_mlflow(dsn: str, run_id: str, steps: int) -> None:
    """One metric of the same run in MLflow's table; the other 19 are left out, in MLflow's favour."""
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into metrics (key, value, timestamp, run_uuid, step, is_nan) select 'm7', case when step = any(%s)"
            f" then {SPIKE} else sin(step / 1e4) end, {_FIRST_SECOND}000::bigint + step * 1000, %s, step, false"
            " from generate_series(0::bigint, %s - 1) step".encode(),
            [planted(steps), run_id, steps],
        )
        connection.execute("analyze metrics")


def mlflow_run(dsn: str) -> str | None:
    """The run that `load_mlflow` has filled, if any."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select run_uuid from metrics limit 1").fetchone()
        return str(row[0]) if row else None


def has_spikes(steps: int, iterations: Sequence[int]) -> bool:
    """Whether every planted step is among these."""
    return set(planted(steps)) <= set(iterations)
