"""The queue between the training loop and the worker: nothing lost, nothing beyond its bound, every row counted."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lens_hook.buffer import Buffer, Row
from lens_hook.session import Session

WIDTHS = st.lists(st.one_of(st.integers(0, 80), st.just(3000)), max_size=200)


def row(session: Session, width: int, at: float = 1.0) -> Row:
    """A row of `width` metrics."""
    return session, dict.fromkeys(map(str, range(width)), 1.0), None, None, None, None, at


def bytes_of(rows: list[Row]) -> int:
    """The size of the rows as the buffer counts it."""
    return sum(200 + 60 * len(waiting[1]) for waiting in rows)


@given(WIDTHS, st.integers(0, 300_000), st.integers(1, 2000), st.integers(0, 200))
def test_every_row_is_taken_or_counted_and_the_bound_holds(
    widths: list[int], limit_bytes: int, wake_rows: int, take_after: int
) -> None:
    buffer = Buffer(limit_bytes, wake_rows)
    session = Session("wandb", "r", buffer)
    taken: list[Row] = []
    for number, width in enumerate(widths):
        if number == take_after:
            taken += buffer.drain_rows(0.0)
        buffer.append_row(row(session, width))
        assert bytes_of(list(buffer.rows)) <= limit_bytes
    taken += buffer.drain_rows(0.0)
    counts = buffer.counts
    assert counts.logged == len(widths) == len(taken) + counts.dropped_rows
    assert sum(widths) == sum(len(kept[1]) for kept in taken) + counts.dropped_points


def test_the_worker_is_woken_by_a_batch_and_not_before() -> None:
    buffer = Buffer(1 << 20, 100)
    session = Session("wandb", "r", buffer)
    buffer.drain_rows(0.0)
    for _ in range(99):
        buffer.append_row(row(session, 5))
    assert buffer.wake.locked()
    buffer.append_row(row(session, 5))
    assert not buffer.wake.locked()


def test_the_caller_helps_when_the_queue_is_full_and_when_the_worker_is_late() -> None:
    buffer = Buffer(10_000, 1000)
    session = Session("wandb", "r", buffer)
    helped: list[int] = []

    def help_once() -> bool:
        helped.append(len(buffer.drain_rows(100.0)))
        return True

    buffer.help, buffer.help_after_seconds = help_once, 2.0
    buffer.drain_rows(100.0)
    buffer.append_row(row(session, 5, at=101.0))
    assert helped == []
    buffer.append_row(row(session, 5, at=102.5))
    assert helped == [2]
    for _ in range(40):
        buffer.append_row(row(session, 5, at=101.0))
    assert helped[1:] == [21]  # one more than there is room for
    assert buffer.counts.dropped_rows == 0


def test_a_buffer_that_is_off_keeps_nothing() -> None:
    buffer = Buffer(1 << 20, 1000)
    session = Session("wandb", "r", buffer)
    buffer.drain_rows(0.0)
    buffer.append_row(row(session, 5))
    buffer.turn_off()
    buffer.append_row(row(session, 5))
    assert not buffer.rows
    buffer.drain_rows(0.0)
    buffer.append_row(row(session, 5))
    assert not buffer.rows


def test_threads_lose_nothing_while_rows_are_taken() -> None:
    buffer = Buffer(1 << 26, 50)
    sessions = [Session("wandb", str(number), buffer) for number in range(4)]
    ended = threading.Barrier(5)

    def log(session: Session) -> None:
        for number in range(2000):
            buffer.append_row(row(session, 0, at=float(number)))
        ended.wait()

    threads = [threading.Thread(target=log, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    taken: list[Any] = []
    while ended.n_waiting < 4:
        taken += buffer.drain_rows(0.0)
    taken += buffer.drain_rows(0.0)
    ended.wait()
    for thread in threads:
        thread.join()
    for session in sessions:
        assert [kept[-1] for kept in taken if kept[0] is session] == [float(number) for number in range(2000)]
    assert buffer.counts.logged == 8000
