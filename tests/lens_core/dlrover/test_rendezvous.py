"""Nodes that meet: at once when all are there, with fewer after a while, again when one comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.dlrover.rendezvous import MAX_NODES, NoRoom, Rendezvous, Terms


class Clock:
    """A clock to turn."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def meeting(clock: Clock, *, least: int, most: int, unit: int = 1) -> Rendezvous:
    made = Rendezvous(clock)
    made.agree(Terms(min_nodes=least, max_nodes=most, waiting_seconds=30.0, unit=unit))
    return made


def test_all_nodes_get_the_same_world_in_the_order_of_ranks() -> None:
    place = meeting(Clock(), least=3, most=3)
    assert [place.join(rank, 8) for rank in (2, 0)] == [0, 0]
    assert place.world() == (0, {})
    place.join(1, 4)
    number, world = place.world()
    assert (number, list(world.items())) == (1, [(0, 8), (1, 4), (2, 8)])
    assert place.world() == (1, world)
    assert place.waiting == 0


def test_fewer_nodes_begin_after_a_while_in_whole_units() -> None:
    clock = Clock()
    place = meeting(clock, least=2, most=8, unit=2)
    for rank in (4, 1, 3):
        place.join(rank, 1)
    clock.now = 29.0
    assert place.world() == (0, {})
    clock.now = 30.0
    assert place.world() == (1, {1: 1, 3: 1})
    assert place.waiting == 0, "one node alone makes up no unit"
    place.join(5, 1)
    assert place.waiting == 2


def test_a_node_that_comes_back_makes_all_meet_again() -> None:
    place = meeting(Clock(), least=2, most=2)
    for rank in (0, 1):
        place.join(rank, 1)
    assert place.world()[0] == 1
    place.join(1, 1)
    assert place.waiting == 1
    assert place.world() == (1, {})
    place.join(0, 1)
    assert place.world() == (2, {0: 1, 1: 1})


def test_the_first_terms_count_and_none_means_waiting() -> None:
    place = Rendezvous(Clock())
    place.join(0, 1)
    assert place.world() == (0, {})
    place.agree(Terms(min_nodes=0, max_nodes=0))
    place.agree(Terms(min_nodes=1, max_nodes=1))
    place.agree(Terms(min_nodes=2, max_nodes=2))
    assert place.world() == (1, {0: 1})


def test_there_is_an_end_to_how_many_may_wait() -> None:
    place = meeting(Clock(), least=MAX_NODES + 1, most=MAX_NODES + 1)
    for rank in range(MAX_NODES):
        place.join(rank, 1)
    with pytest.raises(NoRoom):
        place.join(MAX_NODES, 1)


@given(st.lists(st.integers(0, 7), max_size=60), st.integers(1, 4), st.integers(1, 3))
def test_a_world_is_never_too_small_and_holds_only_nodes_that_joined(joins: list[int], least: int, unit: int) -> None:
    clock = Clock()
    place = meeting(clock, least=least, most=6, unit=unit)
    waiting: set[int] = set()
    last = 0
    for rank in joins:
        place.join(rank, 1)
        waiting.add(rank)
        clock.now += 31.0
        number, world = place.world()
        if number > last:
            assert least <= len(world) <= 6
            assert waiting.issuperset(world)
            waiting -= world.keys()
        last = number
