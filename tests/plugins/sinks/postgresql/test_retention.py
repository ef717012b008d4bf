"""Retention by age, by pattern, by size; rows, figures, blocks and facts together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql import retention
from lens_plugins.sinks.postgresql.compacting import compact_stream
from lens_plugins.sinks.postgresql.point_store import StreamSize
from lens_plugins.sinks.postgresql.retention import Policy, choose_streams, retain
from lens_plugins.sinks.postgresql.sessions import only_here

from lens_core import Delivered, Event, Origin
from tests.plugins.sinks.postgresql.support import Spool, ask, points, row, running_store

DAY_US = 86_400 * 1_000_000
NOW_US = 100 * DAY_US


def stream(number: int, *, days: float, size: int = 1, subject: int = 0, uid: str = "u") -> StreamSize:
    """A stream that was written so many days ago."""
    return StreamSize(number, subject, uid, uid, int(NOW_US - days * DAY_US), size)


def gone(streams: Sequence[StreamSize], policy: Policy) -> list[int]:
    """The ids of what is chosen."""
    return [chosen.id for chosen in choose_streams(streams, policy, NOW_US)]


def test_by_age_and_by_pattern() -> None:
    streams = [stream(1, days=40), stream(2, days=40, uid="prod-1"), stream(3, days=9, uid="ci-1"), stream(4, days=9)]
    assert gone(streams, Policy()) == []
    assert gone(streams, Policy(days=30)) == [1, 2]
    assert gone(streams, Policy(days=30, patterns=[("prod-*", None), ("ci-*", 7.0)])) == [1, 3]
    assert gone(streams, Policy(patterns=[("ci-*", 7.0)])) == [3]


def test_by_size_the_oldest_goes_and_what_is_written_stays() -> None:
    streams = [stream(1, days=3, size=50), stream(2, days=2, size=50), stream(3, days=0, size=900)]
    assert gone(streams, Policy(max_bytes=960)) == [1]
    assert gone(streams, Policy(max_bytes=10)) == [1, 2]
    both = [stream(1, days=3, size=60), stream(2, days=2, size=60), stream(3, days=9, size=70, subject=1)]
    assert gone(both, Policy(max_workload_bytes=100)) == [1]


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(1, 100), st.integers(0, 3)), max_size=30), st.integers(0, 500))
def test_what_stays_fits_or_is_in_use(given_streams: list[tuple[float, int, int]], most: int) -> None:
    streams = [stream(n, days=days, size=size, subject=s) for n, (days, size, s) in enumerate(given_streams)]
    chosen = set(gone(streams, Policy(max_bytes=most)))
    left = [one for one in streams if one.id not in chosen]
    quiet = [one for one in left if one.written_us < NOW_US - 3_600_000_000]
    assert sum(one.size for one in left) <= most or not quiet


async def _sent(spool: Spool) -> bool:
    """Whether a new row of the removed run is taken; the store finds out first that the run is gone."""
    answers = [await spool.send(row(8, run_id="old")) for _ in range(2)]
    return isinstance(answers[-1], Delivered)


async def test_an_old_attempt_goes_with_all_that_it_had(tmp_path: Path, postgres_dsn: str) -> None:
    now_us = time.time_ns() // 1000
    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        spool = Spool(store)
        await spool.deliver(
            *(row(step, run_id="old") for step in range(300)), *(row(step, run_id="new") for step in range(5))
        )
        other = Origin(workload_uid="other")
        await spool.deliver(row(0, origin=other, run_id="old"), Event(origin=other, type="stalled", event_time=5.0))
        connection = await store.database.connect()
        async with connection:
            (stream_id,) = await (
                await connection.execute("select min(id) from lens_stream where rows = 300")
            ).fetchone()
            await compact_stream(connection, stream_id, partial=True)
            policy = Policy(days=30)
            assert (await retain(connection, store._points, policy, now_us))["attempts_removed"] == 0, "it came today"
            await connection.execute(
                "update lens_row set received_us = 0"
                " where stream_id in (select id from lens_stream where run_id = 'old')"
            )
            before = await store.version("workload-1")
            assert await retain(connection, store._points, policy, now_us) == {
                "attempts_removed": 2,
                "rows_removed": 301,
            }
            assert await store.version("workload-1") != before
            later = now_us + 31 * DAY_US
            await retain(connection, store._points, Policy(days=30, patterns=[("*", None)]), later)
        assert {p.run_id for p in await points(store)} == {"new"}
        assert [(s.name, s.count) for s in await store.metric_sources("workload-1")] == [("wandb", 5)]
        assert (await store.workload("workload-1")).summary.rows == 5
        assert await store.workload("other") is None
        for table, left in (("lens_block", 0), ("lens_column", 0), ("lens_row", 5), ("lens_event", 0)):
            assert ask(postgres_dsn, f"select count(*) from {table}") == [(left,)]
        assert await _sent(spool)
        assert {p.run_id for p in await points(store)} == {"new", "old"}


async def test_a_run_of_which_only_events_told_goes_with_its_subject(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        now_us = time.time_ns() // 1000
        said = Event(origin=Origin(workload_uid="w"), type="training_started", run_id="r", session="s", event_time=5.0)
        await Spool(store).deliver(said)
        assert ask(postgres_dsn, "select rows from lens_stream") == [(0,)]
        connection = await store.database.connect()
        async with connection:
            await retain(connection, store._points, Policy(days=30), now_us + 20 * DAY_US)
            assert ask(postgres_dsn, "select count(*) from lens_stream") == [(1,)]
            await retain(connection, store._points, Policy(days=30), now_us + 40 * DAY_US)
    for table in ("lens_stream", "lens_subject", "lens_event"):
        assert ask(postgres_dsn, f"select count(*) from {table}") == [(0,)]


async def test_streams_are_looked_at_in_portions(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_STREAMS_AT_ONCE", 3)
    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        await Spool(store).deliver(*(row(step, run_id=f"run-{step}") for step in range(10)))
        connection = await store.database.connect()
        async with connection:
            far = time.time_ns() // 1000 + 90 * DAY_US
            assert await retain(connection, store._points, Policy(days=30), far) == {
                "attempts_removed": 10,
                "rows_removed": 10,
            }


async def test_a_writer_between_two_portions_leaves_nothing_apart(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt stays with what it still has, and every figure counts just that, after each portion."""
    monkeypatch.setattr(retention, "_ROWS_AT_ONCE", 100)
    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        spool = Spool(store)
        await spool.deliver(*(row(s, values={"loss": 1.0, **({"odd": 2.0} if s % 3 else {})}) for s in range(2050)))
        ask(postgres_dsn, "update lens_row set received_us = 0 returning 1")
        remove_rows = retention._remove_rows
        portions: list[tuple[int, int]] = []

        async def remove_and_write(*arguments: Any) -> tuple[int, int]:
            portions.append(await remove_rows(*arguments))
            if len(portions) == 2:
                writing.append(asyncio.create_task(spool.deliver(row(5000, values={"odd": 1.0}), row(7))))
                await until_somebody_waits(postgres_dsn)
            return portions[-1]

        writing: list[asyncio.Task[None]] = []
        monkeypatch.setattr(retention, "_remove_rows", remove_and_write)
        connection = await store.database.connect()
        async with connection:
            await compact_stream(connection, 1, partial=True)
            found = await retain(connection, store._points, Policy(days=30), time.time_ns() // 1000)
            await writing[0]
        # PostgreSQL may give the lock to the next portions, too, before the writer that waits gets it.
        removed = found["rows_removed"]
        assert (found["attempts_removed"], removed in range(200, 2100, 100)) == (0, True)
        assert [count for count, _ in portions] == [100] * (removed // 100)
        assert [p.iteration for p in await points(store, metrics=("loss",))] == [7, *range(removed, 2050)]
    left = 2052 - removed
    assert ask(postgres_dsn, "select rows, blocked_rows, last_step from lens_stream") == [(left, 0, 5000)]
    assert ask(postgres_dsn, "select rows from lens_subject") == [(left,)]
    counted = "select key, count(*) from lens_row, jsonb_object_keys(metrics) key group by 1 order by 1"
    assert ask(postgres_dsn, "select metric, points from lens_catalogue order by 1") == ask(postgres_dsn, counted)


async def until_somebody_waits(dsn: str) -> None:
    """Wait until a statement stands before somebody else's lock."""
    deadline = time.monotonic() + 20
    while not ask(dsn, "select 1 from pg_stat_activity where wait_event_type = 'Lock'"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_two_daemons_do_not_remove_at_one_time(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        await Spool(store).deliver(row(0))
        far = time.time_ns() // 1000 + 90 * DAY_US
        async with await store.database.connect() as connection:
            async with await store.database.connect() as other, only_here(other, retention._LOCK) as is_held:
                assert is_held
                assert await retain(connection, store._points, Policy(days=30), far) == {
                    "attempts_removed": 0,
                    "rows_removed": 0,
                }
            assert await retain(connection, store._points, Policy(days=30), far) == {
                "attempts_removed": 1,
                "rows_removed": 1,
            }


async def test_old_events_are_found_by_an_index_and_go_in_portions(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_ROWS_AT_ONCE", 3)
    async with running_store(tmp_path, postgres_dsn, blocks=False) as store:
        where = Origin(workload_uid="w")
        await Spool(store).deliver(
            row(0, origin=where), *(Event(origin=where, type="saved", event_time=float(n)) for n in range(1, 11))
        )
        before = await store.version("w")
        async with await store.database.connect() as connection:
            await retain(connection, store._points, Policy(days=30), 30 * DAY_US + 8_000_001)
        assert await store.version("w") != before
        assert [event.timestamp for event in await store.events("w")] == [10_000, 9_000]
    with psycopg.connect(postgres_dsn) as plain:
        plain.execute("set enable_seqscan = off")
        plan = plain.execute("explain delete from lens_event where event_time_us < 5").fetchall()
    assert "lens_event_age" in str(plan)


async def test_the_background_removes(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(row(0))
    ask(postgres_dsn, "with old as (update lens_row set received_us = 0 returning 1) select * from old")
    async with running_store(tmp_path, postgres_dsn, retention_days=1.0) as store:
        ends = time.monotonic() + 240
        while await points(store):
            assert time.monotonic() < ends
