"""Blocks give way to writing, and never for long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.blocks import BLOCK_ROWS
from lens_plugins.sinks.postgresql.waiting import (
    BUSY_ROWS,
    IDLE_SECONDS,
    PATIENCE_ROWS,
    PATIENCE_SECONDS,
    WATCHED_ROWS,
    WATCHED_SECONDS,
    Waiting,
)

POLL_SECONDS = 2.0
BATCHES = st.lists(
    st.tuples(st.floats(0, 20), st.integers(1, 3), st.integers(0, 2 * PATIENCE_ROWS // 10), st.booleans()),
    min_size=1,
    max_size=60,
)


def test_a_calm_stream_does_not_wait() -> None:
    waiting = Waiting()
    for second in range(int(BLOCK_ROWS)):
        waiting.grew(1, 1, float(second), late=False)
        assert waiting.due(float(second)) == ({1: False} if second == BLOCK_ROWS - 1 else {})


def test_a_late_row_is_enough() -> None:
    waiting = Waiting()
    waiting.grew(1, 1, 0.0, late=True)
    assert waiting.due(0.0) == {1: False}
    assert waiting.due(1.0) == {}
    assert waiting.due(IDLE_SECONDS) == {1: True}
    assert waiting.due(2 * IDLE_SECONDS) == {}


def test_blocks_wait_while_much_is_written_and_follow_at_once() -> None:
    waiting = Waiting()
    for tenth in range(20):
        assert not waiting.grew(1, 2 * int(BUSY_ROWS), tenth / 10, late=True)
        assert waiting.due(tenth / 10) == {}
    assert waiting.due(2.0 + 5.0) == {1: False}


def test_a_stream_with_too_many_rows_is_urgent() -> None:
    waiting = Waiting()
    assert waiting.grew(1, PATIENCE_ROWS, 0.0, late=False)
    assert waiting.due(0.0) == {1: False}
    assert not waiting.grew(1, 1, 0.0, late=False)


def test_a_stream_that_somebody_looks_at_waits_less() -> None:
    waiting = Waiting()
    assert not waiting.record_reader(1, 0.0)
    assert not waiting.grew(1, WATCHED_ROWS, 0.0, late=False)
    assert waiting.due(0.0) == {}
    assert waiting.record_reader(1, 0.1)
    assert waiting.due(0.1) == {1: False}
    assert not waiting.grew(1, WATCHED_ROWS - 1, 0.2, late=False)
    assert waiting.grew(1, 1, 0.2, late=False)
    assert waiting.due(0.2) == {1: False}
    assert not waiting.grew(1, WATCHED_ROWS, 0.3 + WATCHED_SECONDS, late=False)


@given(BATCHES)
def test_no_stream_waits_for_ever(batches: list[tuple[float, int, int, bool]]) -> None:
    waiting = Waiting()
    now, polled = 0.0, 0.0
    outside: dict[int, int] = {}
    since: dict[int, float] = {}
    for pause, stream, rows, late in batches:
        now += pause / 10
        waiting.grew(stream, rows, now, late=late)
        outside[stream] = outside.get(stream, 0) + rows
        if late or outside[stream] >= BLOCK_ROWS:
            since.setdefault(stream, now)
        if now - polled >= POLL_SECONDS:
            polled = now
            for served, idle in waiting.due(now).items():
                outside[served] = 0 if idle else outside[served] % BLOCK_ROWS
                since.pop(served, None)
            assert all(now - moment < PATIENCE_SECONDS for moment in since.values())
            assert all(count < PATIENCE_ROWS for count in outside.values())
    assert set(waiting.due(now + PATIENCE_SECONDS)) >= set(since), "after the load all that is due gets its turn"
