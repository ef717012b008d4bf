"""The memory store: everything comes out once and in order, or is counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lens_hook.buffer import Counts
from lens_hook.store import MAX_BODY_BYTES, MemoryStore
from lens_hook.wire import Line


def line(number: int, size: int) -> Line:
    """A row of a certain size, recognisable by its number."""
    return Line(str(number).encode() + b"|" + b"x" * size, 2)


@given(st.lists(st.lists(st.integers(0, 300), max_size=6) | st.integers(1, 5), max_size=20), st.integers(100, 3000))
def test_nothing_is_lost_uncounted(script: list[list[int] | int], limit: int) -> None:
    counts, written, read = Counts(), 0, []
    store = MemoryStore(b"{}", limit, counts)
    for step in script:
        if isinstance(step, int):
            batch = store.peek(step)
            if batch is not None:
                assert len(batch.lines) <= step
                read += [int(item.text.split(b"|")[0]) for item in batch.lines]
                store.done(batch)
        else:
            store.append([line(written + index, size) for index, size in enumerate(step)])
            written += len(step)
    left, points = store.rows_left()
    assert len(read) + left + counts.dropped_rows == written
    assert points == 2 * left
    assert counts.dropped_points == 2 * counts.dropped_rows
    assert read == sorted(set(read))


def test_a_body_is_bounded() -> None:
    store = MemoryStore(b"{}", 100 * MAX_BODY_BYTES, Counts())
    store.append([line(number, MAX_BODY_BYTES // 3) for number in range(8)])
    seen: list[int] = []
    while (batch := store.peek(1000)) is not None:
        assert len(batch.lines) < 4
        seen += [int(item.text.split(b"|")[0]) for item in batch.lines]
        store.done(batch)
    assert seen == list(range(8))
    assert not store.waiting()


def test_evidence_is_not_pushed_out_by_rows() -> None:
    counts = Counts()
    store = MemoryStore(b"{}", 500, counts)
    store.append([Line(b"evidence", 0, is_row=False)])
    store.append([line(number, 100) for number in range(50)])
    batch = store.peek(100)
    assert batch is not None
    assert batch.lines[0].text == b"evidence"
    assert batch.rows() + counts.dropped_rows == 50


@given(st.lists(st.integers(0, 400), max_size=12), st.integers(1, 300))
def test_events_and_evidence_are_bounded_and_counted(added: list[int], taken: int) -> None:
    counts, written, read = Counts(), 0, []
    store = MemoryStore(b"{}", 10_000, counts)
    for number in added:
        store.append([Line(str(written + index).encode(), 0, is_row=False) for index in range(number)])
        written += number
        batch = store.peek(taken)
        if batch is not None and number % 2:
            read += [int(item.text) for item in batch.lines]
            store.done(batch)
    assert len(read) + store.others_left() + counts.lost_others == written
    assert store.others_left() <= 1000 + taken
    assert read == sorted(set(read))
    assert counts.dropped_rows == 0
