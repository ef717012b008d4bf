"""The counts of one sink, at the moments that threads make hard to hit."""

from __future__ import annotations

from lens_core import Position
from lens_core.delivery.spool.sink_state import Outcome, Pending, SinkState, SpooledBatch


def state_with(*batches: SpooledBatch) -> SinkState:
    sink_state = SinkState("s", required=False)
    for batch in batches:
        sink_state.appended(batch)
    return sink_state


def batch(number: int, records: int = 10, only_sink: str = "") -> SpooledBatch:
    return SpooledBatch(number, 100.0 + number, records, 1000, only_sink, 100)


def test_what_was_read_before_the_cursor_moved_is_not_handed_out() -> None:
    sink_state = state_with(batch(1), batch(2))
    start = sink_state.cursor
    sink_state.skipped([batch(1)], 102.0)
    assert sink_state.hand_out(start, Position(1, 10), 10, 1000) is False
    assert sink_state.in_flight_end is None
    assert sink_state.hand_out(sink_state.cursor, Position(2, 10), 10, 1000) is True


def test_a_batch_that_is_in_flight_in_part_is_dropped_only_in_its_other_part() -> None:
    sink_state = state_with(batch(1), batch(2), batch(3))
    assert sink_state.hand_out(Position(0, 0), Position(2, 4), 14, 1000)
    sink_state.skipped([batch(1), batch(2)], 103.0)
    snapshot = sink_state.take_snapshot()
    assert snapshot.counts["dropped", "spool_full"] == 6
    assert snapshot.pending.records == 24
    sink_state.settled(Position(2, 4), 14, 1000, 103.0, 0, Outcome(delivered=14))
    assert sink_state.take_snapshot().pending == Pending(10, 1000, 103.0)
    assert sink_state.cursor == Position(2, 10)


def test_what_was_done_of_a_batch_is_not_dropped_with_the_rest() -> None:
    sink_state = state_with(batch(1))
    sink_state.settled(Position(1, 3), 3, 0, 101.0, 0, Outcome(delivered=3))
    sink_state.skipped([batch(1)], None)
    snapshot = sink_state.take_snapshot()
    assert snapshot.counts["dropped", "spool_full"] == 7
    assert snapshot.pending.records == 0


def test_a_batch_for_another_sink_is_not_counted() -> None:
    sink_state = state_with(batch(1, only_sink="other"), batch(2, only_sink="s"))
    assert sink_state.take_snapshot().counts["accepted", ""] == 10


def test_counts_are_given_once() -> None:
    sink_state = state_with(batch(1))
    assert sink_state.take_snapshot().counts == {("accepted", ""): 10}
    assert sink_state.take_snapshot().counts == {}
