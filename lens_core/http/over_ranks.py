"""Summaries over very many ranks in place of points: which questions are answered so, and how the answer says it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from ..model.queries import PointColumns, PointQuery

_MARK = "lowest_rank"  # an extra that no other answer has


class _Curve(NamedTuple):
    data_source: str
    run_id: str
    attempt: int


def with_summaries(query: PointQuery, most: int) -> PointQuery:
    """The query, which allows `most` summaries of a curve where it asks for whole curves of all ranks."""
    is_plain = query.aggregate is None and query.last is None and query.limit is None and not query.fields
    if not is_plain or query.rank is not None or query.is_descending:
        return query
    return msgspec.structs.replace(query, over_ranks=most)


def is_over_ranks(piece: PointColumns) -> bool:
    """Whether a piece has summaries over ranks."""
    return _MARK in piece.extras


@asynccontextmanager
async def closing(pieces: AsyncIterator[PointColumns]) -> AsyncIterator[None]:
    """Close the store's own generator, however the reading of it ends."""
    try:
        yield
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


class CurvesOverRanks:
    """Notes which curves of an answer are summaries over ranks."""

    def __init__(self) -> None:
        self._found: dict[_Curve, None] = {}

    async def noted(self, pieces: AsyncIterator[PointColumns]) -> AsyncGenerator[PointColumns, None]:
        """The same pieces."""
        async with closing(pieces):
            async for piece in pieces:
                if is_over_ranks(piece):
                    self._found[_Curve(piece.data_source, piece.run_id, piece.attempt)] = None
                yield piece

    def described(self) -> dict[str, Any]:
        """The field of the answer that names them; none where there are none."""
        return {"over_ranks": [curve._asdict() for curve in self._found]} if self._found else {}
