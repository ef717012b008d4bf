"""Steps of rows that say only how many epochs are done."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.detection.log_lines.epoch_steps import COUNTER, count_rows, step_of_epoch
from lens_core.detection.log_lines.stream_memory import Stream


def read(steps: range, per_epoch: int, digits: int, stream: Stream) -> list[int]:
    """The numbers of rows that come at these steps."""
    found = []
    for step in steps:
        stream.last[COUNTER] = step_of_epoch(round(step / per_epoch, digits), per_epoch, stream)
        found.append(stream.last[COUNTER])
    return found


@given(
    st.integers(1, 500),
    st.integers(2, 20_000),
    st.sampled_from([2, 4]),
    st.integers(2, 60),
    st.integers(1, 60),
)
def test_rows_grow_and_are_near_their_steps(every: int, per_epoch: int, digits: int, rows: int, resumed: int) -> None:
    stream = Stream()
    steps = range(every, every * (rows + 1), every)
    found = read(steps, per_epoch, digits, stream)
    assert all(later > earlier for earlier, later in pairwise(found))
    tolerance = 2 * (0.005 * per_epoch + 0.5) + 1
    assert all(abs(one - step) <= tolerance + len(found) for one, step in zip(found, steps, strict=True))
    again = range(every * min(resumed, rows), every * (rows + 1), every)
    stream.last.clear()  # as for a new attempt
    assert abs(read(again, per_epoch, digits, stream)[0] - again[0]) <= tolerance


@pytest.mark.parametrize("every", [1, 5, 10, 20, 25, 50, 100])
def test_the_usual_intervals_are_found(every: int) -> None:
    steps = range(every, 20 * every + 1, every)
    assert read(steps, 150, 4, Stream()) == list(steps)
    assert every < 5 or read(steps, 150, 2, Stream()) == list(steps)


def test_counted_rows_go_back_with_their_epochs() -> None:
    stream = Stream()
    for row in range(1, 31):
        stream.ordinal = count_rows(round(row * 10 / 157, 2), stream)
    assert stream.ordinal == 30
    assert count_rows(round(210 / 157, 2), stream) == 21
    stream.ordinal = 0  # a start was announced
    assert count_rows(round(220 / 157, 2), stream) == 22
    assert count_rows(None, Stream(ordinal=4)) == 5
