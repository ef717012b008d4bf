"""Updates of the live view: no point and no event is left out, and none comes twice."""

from __future__ import annotations

import base64
import random
from collections import Counter
from typing import Any

import msgspec
import psycopg
import pytest
from lens_plugins.sinks.postgresql import news as reading_news
from lens_plugins.sinks.postgresql import news_log

from lens_core import BadRequest, Event, News, Origin, PointQuery
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
        assert len(points) == ranks
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


async def follow(store: Any, cursor: str) -> tuple[list[News], str]:
    """All answers from a cursor on, until there is no more."""
    found = [await store.news(QUERY, cursor)]
    while found[-1].more:
        found.append(await store.news(QUERY, found[-1].cursor))
    return found, found[-1].cursor


@pytest.mark.parametrize("seed", range(4))
async def test_every_row_that_a_batch_wrote_comes_or_is_counted(
    store: Any, spool: Spool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(reading_news, "_ROWS", 7)
    monkeypatch.setattr(reading_news, "_MOST_ROWS", 40)
    monkeypatch.setattr(reading_news, "_MOST_WAITING", rng.choice((3, 100)))
    monkeypatch.setattr(news_log, "MOST_RANGES", rng.choice((20, 500)))
    cursor = (await store.news(QUERY, "")).cursor
    stored: dict[tuple[int, int], float] = {}
    drawn: dict[tuple[int, int], float] = {}
    for number in range(1, 12):
        written = {(rng.randrange(40), rng.randrange(number * 10)): float(rng.randrange(99)) for _ in range(60)}
        is_late = any(
            step <= max((known for of, known in stored if of == rank), default=-1)
            for (rank, step), value in written.items()
            if stored.get((rank, step)) != value
        )
        changed = {key for key, value in written.items() if stored.get(key) != value}
        stored |= written
        await spool.deliver(
            *(
                row(step, session="s", origin=of_rank(rank), values={"loss": value, "rank": rank}, sequence=number)
                for (rank, step), value in written.items()
            )
        )
        answers, cursor = await follow(store, cursor)
        assert len(cursor) < 3000
        came: Counter[tuple[int, int]] = Counter()
        for answer in answers:
            assert sum(len(piece) for piece in answer.points) <= 2 * 40
            for loss, rank_of in zip(answer.points[::2], answer.points[1::2], strict=True):
                keys = [(int(rank), step) for rank, step in zip(rank_of.values, rank_of.iterations, strict=True)]
                came.update(keys)
                drawn |= dict(zip(keys, loss.values, strict=True))
        left_out = sum(answer.left_out for answer in answers)
        assert any(answer.changed for answer in answers) == is_late
        assert len(changed - came.keys()) <= left_out
        if not left_out:
            assert changed <= came.keys()
            assert all(drawn[key] == stored[key] for key in changed)


async def test_a_job_of_more_ranks_than_an_answer_holds_says_how_many_rows_are_left_out(
    store: Any, spool: Spool
) -> None:
    cursor = (await store.news(QUERY, "")).cursor
    await spool.deliver(*(row(0, session="s", origin=of_rank(rank)) for rank in range(700)))
    answers, cursor = await follow(store, cursor)
    sent = sum(len(piece) for answer in answers for piece in answer.points)
    assert sent == news_log.MOST_RANGES
    assert sent + sum(answer.left_out for answer in answers) == 700
    await spool.deliver(row(1, session="s", origin=of_rank(650)))  # a rank that none of them was of
    (answer,), _ = await follow(store, cursor)
    assert [list(piece.iterations) for piece in answer.points] == [[1]]
    assert answer.left_out == 0


async def test_rows_of_a_batch_that_is_committed_later_come(store: Any, spool: Spool, postgres_dsn: str) -> None:
    await spool.deliver(*(row(step) for step in range(3)))
    cursor = (await store.news(QUERY, "")).cursor
    [[stream, subject]] = ask(postgres_dsn, "select id, subject_id from lens_stream")
    insert = (
        "insert into lens_news (subject_id, at_us, streams, first_steps, last_steps, rows, rows_left_out, has_late)"
        " values (%s, 1, array[%s], array[%s], array[%s], array[1], 0, false)"
    )
    with psycopg.connect(postgres_dsn) as slow, psycopg.connect(postgres_dsn) as quick:
        slow.execute(insert.encode(), [subject, stream, 1, 1])
        quick.execute(insert.encode(), [subject, stream, 2, 2])
        quick.commit()
        answers, cursor = await follow(store, cursor)
        assert [list(piece.iterations) for piece in answers[0].points] == [[2]]
        slow.commit()
    answers, cursor = await follow(store, cursor)
    assert [list(piece.iterations) for piece in answers[0].points] == [[1]]
    assert not (await store.news(QUERY, cursor)).points


async def test_a_cursor_of_before_the_notes_or_of_an_older_lens_is_told_to_ask_again(
    store: Any, spool: Spool, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spool.deliver(row(0))
    former = base64.urlsafe_b64encode(msgspec.msgpack.encode([5, 0, {1: [0, 0]}, []])).decode().rstrip("=")
    cursor = (await store.news(QUERY, "")).cursor
    await spool.deliver(row(1))
    monkeypatch.setattr(reading_news, "KEPT_SECONDS", -1)
    for old in (former, cursor):
        answer = await store.news(QUERY, old)
        assert answer.changed
        assert answer.points == []
    monkeypatch.undo()
    assert not (await store.news(QUERY, answer.cursor)).points
    await spool.deliver(row(2))
    assert (await store.news(QUERY, answer.cursor)).points
    with pytest.raises(BadRequest, match="cursor"):
        await store.news(QUERY, "nonsense")


async def test_notes_are_removed_when_no_cursor_may_need_them(
    store: Any, spool: Spool, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await spool.deliver(row(0))
    ask(postgres_dsn, "update lens_news set at_us = 0 returning 1")
    monkeypatch.setattr(store, "_forgot_news_us", 0)
    await spool.deliver(row(1))
    assert ask(postgres_dsn, "select last_steps from lens_news") == [([1],)]
