"""The streams of a query, where their points are, and their blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from lens_core import PointQuery
from lens_core.plugin_api.store import metric_name

from .echoes import LeftOut, preference_of
from .identity import Connection
from .text import metric_key

_LOWEST = -(2**63)
_HIGHEST = 2**63 - 1
# The order of an answer: run, attempt; within them source and rank.
ORDER = attrgetter("run_id", "attempt", "data_source", "rank", "id")
_STREAM = (
    "s.id, s.data_source, s.run_id, s.attempt, s.rank, s.own_iterations, s.blocked_step, s.blocked_rows, s.rows,"
    " coalesce(s.first_iteration, 0), coalesce(s.last_iteration, 0), coalesce(s.last_seen_us, 0), s.pod_uid,"
    " s.pod_name, s.overwritten"
)
_ASKED = (
    "s.subject_id in (select subject_id from lens_name where uid = any(%(uids)s))"
    " and s.last_seen_us >= %(start)s and s.first_seen_us <= %(end)s"
    " and (cardinality(%(sources)s::text[]) = 0 or s.data_source = any(%(sources)s))"
    " and (%(run)s::text is null or s.run_id = %(run)s)"
    " and (%(attempt)s::bigint is null or s.attempt = %(attempt)s)"
    " and (%(rank)s::bigint is null or s.rank = %(rank)s)"
)
_HEADER = (
    "b.first_step, b.last_step, b.rows, b.dirty, b.ordered, b.first_iteration, b.last_iteration, b.first_us, b.last_us"
)


class Stream(NamedTuple):
    """A stream with the number of its points of one metric; times are microseconds since the epoch."""

    id: int
    data_source: str
    run_id: str
    attempt: int
    rank: int
    own_iterations: bool
    blocked_step: int | None
    blocked_rows: int
    rows: int
    first_iteration: int
    last_iteration: int
    last_seen_us: int
    pod_uid: str
    pod_name: str
    overwritten: bool
    points: int


class Header(NamedTuple):
    """A block without its arrays; `ordered`: its iterations never go back."""

    first_step: int
    last_step: int
    rows: int
    dirty: bool
    ordered: bool
    first_iteration: int
    last_iteration: int
    first_us: int
    last_us: int


class Range(NamedTuple):
    """A range of iterations, both ends included."""

    low: int = _LOWEST
    high: int = _HIGHEST


ALL = Range()


class Part(NamedTuple):
    """A location of points: a block of a stream, or its rows between two steps. `place` is the stream's."""

    place: int
    stream: Stream
    first_step: int
    last_step: int
    block: Header | None = None

    def among(self, steps: Range) -> Part:
        """The same without the steps that are outside of a range."""
        return self._replace(first_step=max(self.first_step, steps.low), last_step=min(self.last_step, steps.high))


class Window(NamedTuple):
    """A range of time in microseconds since the epoch, both ends included."""

    start_us: int
    end_us: int

    @property
    def is_limited(self) -> bool:
        """Whether anything is outside."""
        return self.start_us > _LOWEST or self.end_us < _HIGHEST

    def holds(self, block: Header) -> bool:
        """Whether all of a block is in it."""
        return self.start_us <= block.first_us and block.last_us <= self.end_us


def window_of(query: PointQuery) -> Window:
    """The query's times; a millisecond holds all of its microseconds."""
    start, end = query.start_ms, query.end_ms
    return Window(
        _LOWEST if start is None else max(_LOWEST, min(start * 1000, _HIGHEST)),
        _HIGHEST if end is None else max(_LOWEST, min(end * 1000 + 999, _HIGHEST)),
    )


async def streams_by_metric(
    connection: Connection, query: PointQuery, hidden: LeftOut, among: Sequence[int] | None = None
) -> list[tuple[str, list[Stream]]]:
    """The stored names of the wanted metrics in the order of their own names, and the streams that have them.

    A metric that is named is answered, if only by a source that is left out. `among`: the streams that are asked for,
    where summaries over ranks answer for the others.
    """
    wanted = None if query.metrics is None else sorted({metric_key(name) for name in query.metrics})
    cursor = await connection.execute(
        f"select c.metric, {_STREAM}, c.points from lens_stream s join lens_catalogue c on s.id = c.stream_id"
        f" where {_ASKED} and (%(metrics)s::text[] is null or c.metric = any(%(metrics)s))"
        f"{'' if among is None else ' and s.id = any(%(among)s)'}".encode(),
        {**_filter(query, wanted), "among": among},
    )
    found: dict[str, list[Stream]] = defaultdict(list)
    repeated: dict[str, list[Stream]] = defaultdict(list)
    for metric, *stream in await cursor.fetchall():
        (repeated if hidden.holds(stream[0], metric) else found)[metric].append(Stream(*stream))
    if wanted is not None and among is None:
        for metric in repeated.keys() - found.keys():
            source = min((stream.data_source for stream in repeated[metric]), key=preference_of)
            found[metric] = [stream for stream in repeated[metric] if stream.data_source == source]
    return [(metric, sorted(found[metric], key=ORDER)) for metric in sorted(found, key=metric_name)]


async def all_streams(connection: Connection, query: PointQuery, hidden: LeftOut) -> list[Stream]:
    """The streams of a query, each with its number of rows."""
    cursor = await connection.execute(
        f"select {_STREAM}, s.rows from lens_stream s where s.rows > 0 and {_ASKED}".encode(), _filter(query, None)
    )
    found = [Stream(*row) for row in await cursor.fetchall()]
    return sorted((stream for stream in found if stream.id not in hidden.streams), key=ORDER)


async def workloads_of_streams(connection: Connection, query: PointQuery) -> dict[int, str]:
    """The uid under which a query asks for each of its streams."""
    cursor = await connection.execute(
        "select s.id, n.uid from lens_stream s join lens_name n on n.subject_id = s.subject_id where n.uid = any(%s)",
        [[query.workload_uid, *query.others]],
    )
    return {int(stream_id): str(uid) for stream_id, uid in await cursor.fetchall()}


async def headers(connection: Connection, stream_ids: Sequence[int], window: Window) -> dict[int, list[Header]]:
    """The blocks of streams that a window touches, in the order of their steps."""
    found: dict[int, list[Header]] = defaultdict(list)
    if not stream_ids:
        return found
    cursor = await connection.execute(
        f"select b.stream_id, {_HEADER} from lens_block b where b.stream_id = any(%s)"
        " and (b.dirty or (b.last_us >= %s and b.first_us <= %s)) order by 1, b.last_step".encode(),
        [list(stream_ids), window.start_us, window.end_us],
        binary=True,
    )
    for stream_id, *rest in await cursor.fetchall():
        found[stream_id].append(Header._make(rest))
    return found


async def metric_of_all_rows(connection: Connection, streams: Sequence[Stream]) -> str | None:
    """A metric of which every row of these streams has a point, where iterations only rise.

    Any points of such runs draw their iterations: those of a summary are much less to read than all steps and times.
    """
    if any(stream.own_iterations for stream in streams):
        return None
    cursor = await connection.execute(
        "select c.metric from lens_catalogue c join unnest(%s::bigint[], %s::bigint[]) s (id, rows)"
        " on c.stream_id = s.id and c.points = s.rows group by c.metric having count(*) = %s order by 1 limit 1",
        [[stream.id for stream in streams], [stream.rows for stream in streams], len(streams)],
    )
    found = await cursor.fetchone()
    return None if found is None else str(found[0])


def _filter(query: PointQuery, metrics: list[str] | None) -> dict[str, Any]:
    window = window_of(query)
    return {
        "uids": [query.workload_uid, *query.others],
        "sources": query.sources,
        "run": query.run_id,
        "attempt": query.attempt,
        "rank": query.rank,
        "metrics": metrics,
        "start": window.start_us,
        "end": window.end_us,
    }
