from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql import layouts
from lens_plugins.sinks.postgresql.clickhouse import writing
from lens_plugins.sinks.postgresql.clickhouse.schema import COLUMNS, DEFAULTS
from lens_plugins.sinks.postgresql.clickhouse.versions import (
    Source,
    VersionColumns,
    bits_of,
    values_of,
    versions_of,
)
from lens_plugins.sinks.postgresql.clickhouse.writing import WritePlan
from lens_plugins.sinks.postgresql.grouping import StreamKey, SubjectKey, state_of
from lens_plugins.sinks.postgresql.rows import _rank_value

from lens_core import Origin, StepMetrics


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


ROWS = st.lists(
    st.builds(
        StepMetrics,
        origin=st.sampled_from([Origin(workload_uid="w", rank=rank) for rank in (None, 0, 3)]),
        data_source=st.just("log"),
        row_step=st.integers(-3, 40) | st.sampled_from([-(2**63), 2**63 - 1]),
        values=st.dictionaries(
            st.sampled_from("abc"), st.floats() | st.sampled_from([2**53 + 1, 10**22, -0.0]), min_size=1
        ),
        iteration=st.none() | st.integers(-3, 40),
        event_time=st.none() | st.floats() | st.floats(0, 2e9) | st.sampled_from([1.7e9 + 0.1, 2.5e11, -6.2e10]),
        sequence=st.integers(0, 5) | st.sampled_from([-(2**63), 2**63 - 1, 2**62, -(2**62) - 1]),
    ),
    min_size=1,
    unique_by=lambda row: row.row_step,
)


@given(ROWS, st.sampled_from(["log", "wandb"]), st.sampled_from([1, 2, 100]))
def test_rows_in_tables_are_the_versions_that_they_are_one_by_one(
    rows: list[StepMetrics], data_source: str, many: int
) -> None:
    key = StreamKey(SubjectKey("c", "workload:w"), data_source, "run", -1, 1, "")
    source = Source(7, 8, 1_700_000_000_000_000)
    one_by_one = VersionColumns(source)
    for row in rows:
        state = state_of(row, key)
        one_by_one.append_versions(5, row.row_step, versions_of(state), state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "MANY_ROWS", many)
        patch.setattr(writing, "MANY_ROWS", many)
        plan = WritePlan(source, 4)
        assert plan.plan_rows({5: (key, {row.row_step: row for row in rows})}, {}, {5: None}) is not None
    found = versions_in(plan.versions)
    assert found == versions_in(one_by_one)
    assert [version[:2] for version in found] == sorted(version[:2] for version in found)
    assert plan.versions.count == len(found)


def versions_in(versions: VersionColumns) -> list[tuple[Any, ...]]:
    """The versions as they are inserted: metric, step and all else."""
    columns: dict[str, Any] = versions.columns()
    metrics = columns.pop("metric")
    names = ["step", *(name for name in COLUMNS if name not in ("metric", "step"))]
    every = [
        columns[name].tolist() if name in columns else [DEFAULTS[name]] * versions.count
        for name in names
        if name != "tags"
    ]
    return list(zip([metrics.distinct[code] for code in metrics.codes.tolist()], *every, strict=True))
