"""The keys of a job: as they were set, all or none, counted, within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.dlrover.key_values import KeyValues
from lens_core.dlrover.rendezvous import NoRoom


def test_values_come_back_as_they_were_set() -> None:
    keys = KeyValues()
    keys.set("a", b"10.0.0.1")
    keys.set("b", "text")
    assert (keys.get("a"), keys.get("b"), keys.get("c")) == (b"10.0.0.1", "text", b"")


def test_several_are_there_together_or_not_at_all() -> None:
    keys = KeyValues()
    keys.set("a", b"1")
    assert keys.get_all(["a", "b"]) == {}
    keys.set("b", b"2")
    assert keys.get_all(["a", "b"]) == {"a": b"1", "b": b"2"}


@given(st.lists(st.integers(-(10**12), 10**12)))
def test_a_counter_is_the_sum(numbers: list[int]) -> None:
    keys = KeyValues()
    assert [keys.add("n", number) for number in numbers] == [sum(numbers[: index + 1]) for index in range(len(numbers))]


def test_what_is_too_much_is_refused_and_room_comes_back() -> None:
    keys = KeyValues(max_bytes=1000)
    keys.set("a", b"x" * 800)
    with pytest.raises(NoRoom):
        keys.set("b", b"x" * 200)
    keys.set("a", b"")
    keys.set("b", b"x" * 200)
    assert keys.get("b") == b"x" * 200
