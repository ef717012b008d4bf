"""The Arrow stream, read by pyarrow."""

from __future__ import annotations

import math
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import PointColumns
from lens_core.http.point_arrow import ARROW, stream_arrow
from tests.lens_core.http.query_app import QueryApp
from tests.plugins.sinks.postgresql.support import row

POINTS = st.lists(st.tuples(st.floats(), st.integers(-(2**53), 2**53), st.integers(-(2**63), 2**63 - 1)), max_size=20)
PIECES = st.lists(
    st.tuples(st.text(max_size=9), st.text(max_size=9), st.text(max_size=9), st.integers(-(2**31), 2**31 - 1), POINTS),
    max_size=6,
)


async def body_of(pieces: list[PointColumns]) -> bytes:
    """The whole stream."""

    async def given_pieces() -> AsyncIterator[PointColumns]:
        for piece in pieces:
            yield piece

    return b"".join([part async for part in stream_arrow(given_pieces())])


def piece_of(name: str, source: str, run: str, attempt: int, points: list[tuple[float, int, int]]) -> PointColumns:
    """A piece out of (value, timestamp, iteration)."""
    return PointColumns(
        metric_name=name,
        data_source=source,
        run_id=run,
        attempt=attempt,
        values=array("d", [point[0] for point in points]),
        timestamps=array("q", [point[1] for point in points]),
        iterations=array("q", [point[2] for point in points]),
    )


@given(PIECES)
@settings(deadline=None)
@pytest.mark.asyncio
async def test_pyarrow_reads_what_was_written(given_pieces: list[Any]) -> None:
    pieces = [piece_of(*piece) for piece in given_pieces]
    table = pa.ipc.open_stream(await body_of(pieces)).read_all()
    table.validate(full=True)
    wanted = [
        (name, value, time, iteration, source, run, attempt)
        for name, source, run, attempt, points in given_pieces
        for value, time, iteration in points
    ]
    columns = [table.column(name) for name in table.column_names]
    columns[2] = columns[2].cast(pa.int64())
    found = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert list(map(repr, found)) == list(map(repr, wanted))


async def test_the_route(asked: QueryApp) -> None:
    await asked.spool.deliver(
        *(row(step, values={"loss": math.nan if step == 3 else 1.0, "b": 2.0}) for step in range(9))
    )
    response = await asked.get("/workloads/workload-1/metrics/data", format="arrow")
    assert response.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(response.content).read_all()
    assert table.num_rows == 18
    assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert table.column("metric_name").to_pylist() == ["b"] * 9 + ["loss"] * 9
    nothing = await asked.get("/workloads/nobody/metrics/data", format="arrow")
    assert pa.ipc.open_stream(nothing.content).read_all().num_rows == 0
