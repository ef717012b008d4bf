"""Rows that were read before: of a stream that goes on only its news are read, of one that is over nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from lens_core import RunSummary

from .facts import Floats, Ints

Columns = tuple[Ints, Floats]
StreamId = tuple[str, str, str, int, int | None]
_BYTES_OF_ROW = 16


class RowCache:
    """The steps and times of streams, those that were looked at last, in bounded memory.

    A stream is read anew where the number of its rows is not what was known and what is newer: then some came late.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_rows = most_bytes // _BYTES_OF_ROW
        self._known: dict[StreamId, Columns] = {}
        self._rows = 0

    async def read_rows(
        self, uid: str, stream: RunSummary, read: Callable[[int | None], Awaitable[Columns]]
    ) -> Columns:
        """The rows of a stream by `read`, which takes the time (ms) from which on they are wanted."""
        key = (uid, stream.data_source, stream.run_id, stream.attempt, stream.rank)
        known = self._known.pop(key, None)
        found: Columns | None = None
        if known is not None:
            self._rows -= len(known[0])
            if len(known[0]) == stream.rows:
                found = known
            elif len(known[0]) < stream.rows:
                found = _append_news(known, await read(round(float(known[1].max()) * 1000)))
                found = found if len(found[0]) == stream.rows else None
        if found is None:
            found = await read(None)
        if len(found[0]) <= self._most_rows:
            self._known[key] = found
            self._rows += len(found[0])
        while self._rows > self._most_rows:
            self._rows -= len(self._known.pop(next(iter(self._known)))[0])
        return found


def _append_news(known: Columns, news: Columns) -> Columns:
    """Both together; rows of the last millisecond that was known come twice."""
    last = known[1].max()
    again = np.isin(news[0], known[0][known[1] == last]) & (news[1] == last)
    return np.concatenate([known[0], news[0][~again]]), np.concatenate([known[1], news[1][~again]])
