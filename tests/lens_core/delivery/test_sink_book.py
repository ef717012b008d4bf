"""The counts of one sink, at the moments that threads make hard to hit."""

from __future__ import annotations

from lens_core import Position
from lens_core.delivery.spool.sink_state import Outcome, Pending, SinkBook, SpooledBatch


def book_with(*batches: SpooledBatch) -> SinkBook:
    book = SinkBook("s", required=False)
    for batch in batches:
        book.appended(batch)
    return book


def batch(number: int, records: int = 10, only_sink: str = "") -> SpooledBatch:
    return SpooledBatch(number, 100.0 + number, records, 1000, only_sink, 100)


def test_what_was_read_before_the_cursor_moved_is_not_handed_out() -> None:
    book = book_with(batch(1), batch(2))
    start = book.cursor
    book.skipped([batch(1)], 102.0)
    assert book.hand_out(start, Position(1, 10), 10, 1000) is False
    assert book.in_flight_end is None
    assert book.hand_out(book.cursor, Position(2, 10), 10, 1000) is True


def test_a_batch_that_is_in_flight_in_part_is_dropped_only_in_its_other_part() -> None:
    book = book_with(batch(1), batch(2), batch(3))
    assert book.hand_out(Position(0, 0), Position(2, 4), 14, 1000)
    book.skipped([batch(1), batch(2)], 103.0)
    stock = book.take_stock()
    assert stock.counts["dropped", "spool_full"] == 6
    assert stock.pending.records == 24
    book.settled(Position(2, 4), 14, 1000, 103.0, 0, Outcome(delivered=14))
    assert book.take_stock().pending == Pending(10, 1000, 103.0)
    assert book.cursor == Position(2, 10)


def test_what_was_done_of_a_batch_is_not_dropped_with_the_rest() -> None:
    book = book_with(batch(1))
    book.settled(Position(1, 3), 3, 0, 101.0, 0, Outcome(delivered=3))
    book.skipped([batch(1)], None)
    stock = book.take_stock()
    assert stock.counts["dropped", "spool_full"] == 7
    assert stock.pending.records == 0


def test_a_batch_for_another_sink_is_not_counted() -> None:
    book = book_with(batch(1, only_sink="other"), batch(2, only_sink="s"))
    assert book.take_stock().counts["accepted", ""] == 10


def test_counts_are_given_once() -> None:
    book = book_with(batch(1))
    assert book.take_stock().counts == {("accepted", ""): 10}
    assert book.take_stock().counts == {}
