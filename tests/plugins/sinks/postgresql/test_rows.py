"""Merging is commutative, associative and idempotent, and columns hold all of a row."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import reduce

from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.rows import (
    Order,
    RowState,
    from_stored,
    merge,
    order_of,
    to_stored,
    written,
)

LIMIT = 3
NAMES = st.sampled_from(["loss", "lr", "accuracy"])
VALUES = st.one_of(st.floats(), st.sampled_from([math.nan, math.inf, 0.0, -0.0, 1.0]))
TAGS = st.dictionaries(NAMES, st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), min_size=1), max_size=2)
SHARED = st.booleans()


@st.composite
def writes(draw: st.DrawFn, shared: bool) -> list[RowState]:
    one = st.builds(
        lambda values, sequence, rank, tags, iteration, time_us: written(
            values,
            order_of(sequence, rank, shared_by_ranks=shared),
            tags=tags,
            iteration=iteration,
            time_us=time_us,
        ),
        st.dictionaries(NAMES, VALUES, max_size=3),
        st.integers(0, 6),
        st.one_of(st.none(), st.integers(-1, 3)),
        TAGS,
        st.one_of(st.none(), st.integers(0, 3)),
        st.one_of(st.none(), st.integers(0, 9)),
    )
    return draw(st.lists(one, min_size=1, max_size=7))


def all_merged(states: Sequence[RowState]) -> RowState:
    return reduce(lambda one, other: merge(one, other, LIMIT), states)


def same(one: RowState, other: RowState) -> bool:
    # repr tells NaN from nothing else and -0.0 from 0.0
    def shape(state: RowState) -> str:
        current = sorted((name, repr(version)) for name, version in state.current.items())
        history = sorted((order, sorted(map(repr, values.items()))) for order, values in state.history.items())
        return repr((current, history, state.iteration, state.first_us, state.last_us))

    return shape(one) == shape(other)


@given(st.data(), SHARED, st.randoms(use_true_random=False))
def test_neither_order_nor_redelivery_changes_the_row(data: st.DataObject, shared: bool, chance: random.Random) -> None:
    states = data.draw(writes(shared))
    again = [*states, *chance.choices(states, k=3)]
    chance.shuffle(again)
    assert same(all_merged(states), all_merged(again))


@given(st.data(), SHARED)
def test_it_does_not_matter_what_is_merged_first(data: st.DataObject, shared: bool) -> None:
    states = data.draw(writes(shared))
    half = len(states) // 2
    if half:
        both = merge(all_merged(states[:half]), all_merged(states[half:]), LIMIT)
        assert same(both, all_merged(states))


@given(st.data(), SHARED)
def test_columns_hold_the_whole_row(data: st.DataObject, shared: bool) -> None:
    state = all_merged(data.draw(writes(shared)))
    back = from_stored(to_stored(state, shared_by_ranks=shared), shared_by_ranks=shared)
    assert same(back, state)


@given(st.data(), SHARED)
def test_the_history_is_bounded_and_holds_nothing_current(data: st.DataObject, shared: bool) -> None:
    state = all_merged(data.draw(writes(shared)))
    assert len(state.history) <= LIMIT
    for order, values in state.history.items():
        assert values
        assert all(order < state.current[name].order for name in values)


def test_the_highest_sequence_is_current_and_the_rest_is_history() -> None:
    states = [written({"loss": value}, Order(0, sequence)) for sequence, value in ((3, 0.3), (1, 0.1), (2, 0.2))]
    row = to_stored(all_merged(states), shared_by_ranks=False)
    assert (row.metrics, row.sequence, row.key_sequences) == ({"loss": 0.3}, 3, None)
    assert row.history == [
        {"sequence": 1, "rank": None, "values": {"loss": 0.1}},
        {"sequence": 2, "rank": None, "values": {"loss": 0.2}},
    ]


def test_the_lowest_rank_is_preferred_metric_by_metric() -> None:
    states = [
        written({"loss": float(rank), f"only_{rank}": 1.0}, order_of(9 - rank, rank, shared_by_ranks=True))
        for rank in (3, 0, 1)
    ]
    row = to_stored(all_merged(states), shared_by_ranks=True)
    assert row.metrics == {"loss": 0.0, "only_0": 1.0, "only_1": 1.0, "only_3": 1.0}
    assert (row.rank, row.sequence) == (0, 9)
    assert row.key_sequences == {"only_1": (1, 8), "only_3": (3, 6)}


def test_one_write_needs_no_extra_columns() -> None:
    row = to_stored(written({"loss": 1.0}, Order(0, 5), time_us=7), shared_by_ranks=False)
    assert (row.sequence, row.event_time_us) == (5, 7)
    assert (row.key_sequences, row.history, row.tags, row.updated_us, row.rank) == (None,) * 5
