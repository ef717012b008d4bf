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


def planted(steps: int, count: int = 40) -> list[int]:
    """Steps at which metric m7 is out of the ordinary for one step: one in each of `count` parts."""
    chance = random.Random(11)
    part = steps // count
    return [number * part + chance.randrange(part // 4, part // 2) for number in range(count)]


def load_run(dsn: str, uid: str, steps: int) -> None:
    """A run of 20 metrics under a workload, as rows; m7 has the planted spikes."""
    names = ", ".join(
        f"'m{number}', "
        + (
            "case when step = any(%(spikes)s) then %(spike)s else sin(step / 1e4) end"
            if number == 7
            else f"round((random() * {number + 1})::numeric, 6)"
        )
        for number in range(METRICS)
    )
    with psycopg.connect(dsn) as connection:
        subject = _value(
            connection,
            "insert into lens_subject (cluster, key, workload_uid, pod_uid, namespace, pod_name, name, rows,"
            " last_iteration, first_seen_us, last_seen_us, version) values ('default', 'workload:' || %(uid)s, %(uid)s,"
            " '', '', '', %(uid)s, %(steps)s, %(steps)s - 1, %(first)s, %(last)s, 1) returning id",
            uid,
            steps,
        )
        stream = _value(
            connection,
            "insert into lens_stream (subject_id, data_source, run_id, attempt, rank, pod_uid, rows, last_step,"
            " first_iteration, last_iteration, first_seen_us, last_seen_us) values (%(subject)s, 'wandb', 'run', 1, -1,"
            " '', %(steps)s, %(steps)s - 1, 0, %(steps)s - 1, %(first)s, %(last)s) returning id",
            uid,
            steps,
            subject=subject,
        )
        parameters = {"stream": stream, "uid": uid, "steps": steps, "spikes": planted(steps), "spike": SPIKE}
        connection.execute(
            "insert into lens_row (stream_id, row_step, received_us, sequence, event_time_us, iteration, workload_uid,"
            " data_source, metrics) select %(stream)s, step, 0, step,"
            f" {_FIRST_SECOND} * 1000000::bigint + step * 1000000::bigint + (random() * 1000)::int, step, %(uid)s,"
            f" 'wandb', jsonb_build_object({names}) from generate_series(0::bigint, %(steps)s - 1) step".encode(),
            parameters,
        )
        connection.execute(
            "insert into lens_catalogue select %(stream)s, 'm' || n, %(steps)s"
            f" from generate_series(0, {METRICS - 1}) n".encode(),
            parameters,
        )
        connection.execute("analyze lens_row")


def runs_in(dsn: str) -> int:
    """How many runs `load_run` has put there; one that was interrupted is not there at all."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select count(*) from lens_subject where rows > 0").fetchone()
        return int(row[0]) if row else 0


def make_blocks(dsn: str) -> None:
    """Make all blocks that the background would make."""

    async def work() -> None:
        connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
        async with connection:
            cursor = await connection.execute("select id from lens_stream where rows > blocked_rows")
            for (stream_id,) in await cursor.fetchall():
                await compact_stream(connection, stream_id, partial=False)
            await connection.execute("analyze lens_block")
            await connection.execute("analyze lens_column")

    asyncio.run(work())


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


def _value(
    connection: psycopg.Connection[tuple[object, ...]], statement: str, uid: str, steps: int, **more: object
) -> int:
    parameters = {"uid": uid, "steps": steps, "first": _FIRST_SECOND * 10**6, "last": (_FIRST_SECOND + steps) * 10**6}
    row = connection.execute(statement.encode(), {**parameters, **more}).fetchone()
    assert row is not None
    return int(str(row[0]))


def has_spikes(steps: int, iterations: Sequence[int]) -> bool:
    """Whether every planted step is among these."""
    return set(planted(steps)) <= set(iterations)
