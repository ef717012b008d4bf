"""Continues to read the history of a run's metrics, after what is stored.

A server sorts the values of a metric by time and pages them by their place. A cursor therefore holds the number of
values that were read, and the last of them is asked for once more: when it stands at its place, everything in front of
it has been read; when it does not, because somebody has logged a value with an earlier time or the server knows no
places, the metric is read from the beginning, which changes nothing of what is stored.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import msgspec

from .api import Point, PointPage, Refused, Server
from .rows import Value


class KeyCursor(msgspec.Struct, array_like=True):
    """The progress in a metric: `mark` is the last value, `number` its place among those of the same step and time.

    `latest` is what the run said of the metric then, `stepped` whether any value had a step, `has_more` whether reading
    was cut off.
    """

    count: int = 0
    mark: str = ""
    number: int = 0
    latest: str = ""
    stepped: bool = False
    has_more: bool = False


class KeyReading:
    """Reads one metric, page by page; `values` are those of the pages so far, `cursor` is after them.

    `is_chained` says that the server's own tokens are followed, so that reading cannot stop in between.
    """

    def __init__(self, run_id: str, key: str, before: KeyCursor, latest: str) -> None:
        self.values: list[Value] = []
        self.cursor = msgspec.structs.replace(before)
        self.pages = 0
        self.is_chained = False
        self._run_id = run_id
        self._key = key
        self._latest = latest
        self._token = ""
        self._last: Point | None = None

    async def read_page(self, server: Server) -> None:
        """Read the next page. Raises LensError."""
        if self.cursor.count and not self.is_chained:
            page = await self._page_behind_cursor(server)
            new: Sequence[Point] = page.metrics[1:]
        else:
            page = await server.history(self._run_id, self._key, self._token)
            new = page.metrics
            self._note_tokens(page)
        for point in new:
            self.values.append(self._value_of(point))
        self.pages += 1
        token = page.next_page_token
        self.cursor.has_more = bool(token) and token != self._token and bool(page.metrics)
        self._token = token if self.is_chained else ""
        if not self.cursor.has_more:
            self.cursor.latest = self._latest

    async def _page_behind_cursor(self, server: Server) -> PointPage:
        """The page that begins with the last value that was read; else, from the beginning, after an empty one."""
        place = self.cursor.count - 1
        try:
            page = await server.history(self._run_id, self._key, token_of_place(place))
        except Refused:
            page = PointPage()  # a server whose tokens are others
        if page.metrics and page.metrics[0].mark == self.cursor.mark:
            self._last = page.metrics[0]
            return page
        self.cursor = KeyCursor(latest=self.cursor.latest)
        self._last = None
        page = await server.history(self._run_id, self._key, "")
        self._note_tokens(page)
        return PointPage([Point("", 0.0), *page.metrics], page.next_page_token)

    def _note_tokens(self, page: PointPage) -> None:
        """See whether a server that has more names the place after its first page as MLflow's own servers do."""
        if not self.cursor.count and page.next_page_token:
            self.is_chained = page.next_page_token != token_of_place(len(page.metrics))

    def _value_of(self, point: Point) -> Value:
        """Number a value; one without a step (MLflow says 0) is counted until a step is named, as by the hook."""
        cursor = self.cursor
        cursor.stepped = cursor.stepped or point.step != 0
        step = point.step if cursor.stepped else cursor.count
        last = self._last
        is_same = last is not None and cursor.stepped and (last.step, last.timestamp) == (point.step, point.timestamp)
        cursor.number = cursor.number + 1 if is_same else 0
        cursor.count += 1
        cursor.mark = point.mark
        self._last = point
        return Value(self._key, step, point.timestamp, cursor.number, point.number)


def token_of_place(place: int) -> str:
    """The token of MLflow's own servers for the values from a place on."""
    return base64.b64encode(b'{"offset": %d}' % place).decode()
