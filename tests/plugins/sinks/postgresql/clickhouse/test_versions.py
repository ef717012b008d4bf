from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.clickhouse.versions import bits_of, values_of
from lens_plugins.sinks.postgresql.rows import _rank_value


@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_bits_keep_values_and_have_the_order_of_a_merge(values: list[float]) -> None:
    bits = bits_of(values)
    values = [value + 0.0 for value in values]  # a zero loses its sign
    assert [repr(value) for value in values_of(bits).tolist()] == [repr(value) for value in values]
    ranks = [_rank_value(value) for value in values]
    numbers = bits.tolist()
    for one in range(len(values)):
        for other in range(len(values)):
            assert (numbers[one] < numbers[other]) == (ranks[one] < ranks[other])
    assert math.isnan(values_of(bits_of([math.nan]))[0])
