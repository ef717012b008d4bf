"""Rows as COPY takes them: the quick way for rows that were written once says the same as the general one."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.encoding import StreamChange, copy_text
from lens_plugins.sinks.postgresql.grouping import StreamKey, SubjectKey, state_of

from lens_core import Origin, StepMetrics

NAMES = st.sampled_from(["loss", "null", "a\\b", "tab\there", "line\nbreak", 'quo"te', "größe", "target_iteration"])
BIGINTS = st.integers(-(2**63) + 1, 2**63 - 1)
ROWS = st.builds(
    StepMetrics,
    origin=st.builds(Origin, workload_uid=st.just("w"), rank=st.none() | st.integers(-1, 3)),
    data_source=st.just("wandb"),
    row_step=BIGINTS,
    values=st.dictionaries(NAMES, st.floats(), min_size=1, max_size=5),
    iteration=st.none() | BIGINTS,
    event_time=st.none() | st.sampled_from([math.nan, math.inf, -1.0, 1_700_000_000.123456, 1e300]),
    sequence=st.integers(0, 2**63 - 1),
)


def key_of(data_source: str, workload_uid: str) -> StreamKey:
    return StreamKey(SubjectKey("default", f"workload:{workload_uid}"), data_source, "run", -1, 1, "")


def figures(change: StreamChange) -> dict[str, Any]:
    found = {name: getattr(change, name) for name in StreamChange.__dataclass_fields__}
    rows = [row for columns in change.noted for row in zip(*columns, strict=True)]  # however they were cut into pieces
    return {**found, "noted": sorted(map(repr, rows))}


@given(st.lists(ROWS, max_size=6), st.sampled_from(["wandb", "log"]), st.sampled_from(["w", "with\ttab", ""]))
def test_both_ways_say_the_same(rows: list[StepMetrics], data_source: str, workload_uid: str) -> None:
    key = key_of(data_source, workload_uid)
    quick, general = StreamChange(), StreamChange()
    pairs = [(row.row_step, row) for row in rows]
    lines = copy_text(7, key, pairs, 1_700_000_000_000_000, quick)
    states = [(row.row_step, state_of(row, key)) for row in rows]
    assert lines == copy_text(7, key, states, 1_700_000_000_000_000, general)
    assert figures(quick) == figures(general)
    assert lines.count(b"\n") == quick.new_rows == len(rows)


def test_tags_are_in_the_line() -> None:
    row = StepMetrics(data_source="wandb", row_step=1, values={"loss": 1.0}, tags={"loss": {"a\\b": "c\nd"}})
    key = key_of("wandb", "w")
    change = StreamChange()
    assert copy_text(7, key, [(1, row)], 5, change) == copy_text(7, key, [(1, state_of(row, key))], 5, change)
