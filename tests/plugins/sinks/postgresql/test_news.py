"""Updates of the live view: no point and no event is left out, and none comes twice."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
import pytest

from lens_core import Event, Origin, PointQuery
from tests.plugins.sinks.postgresql.support import ORIGIN, Spool, ask, row

QUERY = PointQuery(workload_uid="workload-1")


def of_rank(rank: int) -> Origin:
    return msgspec.structs.replace(ORIGIN, rank=rank)


def started(rank: int) -> Event:
    return Event(
        origin=of_rank(rank),
        type="training_started",
        data_source="wandb",
        run_id="run-1",
        session=f"s{rank}",
        event_time=1_700_000_000.0 + rank,
    )


@pytest.mark.parametrize("ranks", [1, 150])
async def test_a_rank_that_had_only_an_event_appears_with_its_first_row(store: Any, spool: Spool, ranks: int) -> None:
    await spool.deliver(*(started(rank) for rank in range(ranks)), row(0, session="s-other", origin=of_rank(999)))
    news = await store.news(QUERY, "")
    for step in range(3):
        await spool.deliver(*(row(step, session=f"s{rank}", origin=of_rank(rank)) for rank in range(ranks)))
        news = await store.news(QUERY, news.cursor)
        points = [list(columns.iterations) for columns in news.points]
        assert len(points) >= min(ranks, 99)  # as many as a cursor holds
        assert all(step in iterations for iterations in points)
    assert (await store.news(QUERY, news.cursor)).events == []


async def test_an_event_with_a_lower_number_that_is_committed_later(
    store: Any, spool: Spool, postgres_dsn: str
) -> None:
    await spool.deliver(started(0))
    news = await store.news(QUERY, "")
    [[subject]] = ask(postgres_dsn, "select subject_id from lens_event")
    insert = (
        "insert into lens_event (subject_id, digest, type, data_source, run_id, event_time_us, details)"
        " values (%s, %s, %s, 'log', '', 1, '{}')"
    )
    with psycopg.connect(postgres_dsn) as slow, psycopg.connect(postgres_dsn) as quick:
        slow.execute(insert.encode(), [subject, b"1", "slow"])
        quick.execute(insert.encode(), [subject, b"2", "quick"])
        quick.commit()
        news = await store.news(QUERY, news.cursor)
        assert [event.type for event in news.events] == ["quick"]
        slow.commit()
    news = await store.news(QUERY, news.cursor)
    assert [event.type for event in news.events] == ["slow"]
    assert (await store.news(QUERY, news.cursor)).events == []


async def test_many_events_are_shown_once_each(store: Any, spool: Spool) -> None:
    news = await store.news(QUERY, "")
    shown: list[float] = []
    for first in range(0, 600, 150):
        await spool.deliver(*(started(rank) for rank in range(first, first + 150)))
        news = await store.news(QUERY, news.cursor)
        shown += [event.timestamp for event in news.events]
        assert len(news.cursor) < 4000
    assert sorted(set(shown)) == sorted(shown)
    assert len(shown) == 600
