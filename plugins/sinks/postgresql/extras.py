"""Extra columns of points: their rank, their pod, the tags of their metric, the aggregate that they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lens_core import PointQuery

from .grouping import LOG_SOURCE
from .identity import Connection
from .point_store import PointStore
from .series import Series
from .streams import Stream

# Streams from before they had their pod's name: it is that of the subject, or known by a membership.
_PODS = b"""
    select s.id, coalesce(m.pod_name, case when u.workload_uid = '' or s.pod_uid = u.pod_uid then u.pod_name end, '')
    from lens_stream s join lens_subject u on u.id = s.subject_id left join lateral (
        select pod_name from lens_membership where pod_uid = s.pod_uid and pod_uid <> '' and pod_name <> '' limit 1
    ) m on true where s.id = any(%s)
"""


class Extras:
    """Makes the extra columns of pieces; nothing is read where the question wants none."""

    def __init__(self, connection: Connection, store: PointStore, query: PointQuery) -> None:
        self._connection = connection
        self._store = store
        self._columns = query.extra_columns
        self._aggregates = query.aggregates
        self._pod_names: dict[int, str] = {}

    async def of(self, metric: str | None, streams: Sequence[Stream], series: Series) -> dict[str, Sequence[Any]]:
        """The columns for the points of a metric; `streams` are once for each aggregate."""
        if not self._columns:
            return {}
        places: list[int] = series.streams.tolist()
        known = {place: _with_own_pod(streams[place]) for place in set(places)}
        own = [known[place] for place in places]
        found: dict[str, Sequence[Any]] = {}
        for name in self._columns:
            if name == "aggregate":
                each = len(streams) // len(self._aggregates)
                found[name] = [self._aggregates[place // each] for place in places]
            elif name == "rank":
                found[name] = [None if stream.rank < 0 else stream.rank for stream in own]
            elif name == "pod_uid":
                found[name] = [stream.pod_uid for stream in own]
            elif name == "pod_name":
                unknown = {stream.id for stream in own if not stream.pod_name and stream.data_source != LOG_SOURCE}
                names = await self._names_of(unknown)
                found[name] = [stream.pod_name or names.get(stream.id, "") for stream in own]
            else:
                found[name] = await self._tags_of(metric, own, series)
        return found

    async def _names_of(self, stream_ids: set[int]) -> dict[int, str]:
        missing = list(stream_ids - self._pod_names.keys())
        if missing:
            cursor = await self._connection.execute(_PODS, [missing])
            self._pod_names.update((int(row[0]), str(row[1])) for row in await cursor.fetchall())
        return self._pod_names

    async def _tags_of(self, metric: str | None, streams: Sequence[Stream], series: Series) -> list[dict[str, str]]:
        ids, steps = [stream.id for stream in streams], series.steps.tolist()
        if metric is None or not ids:
            return [{} for _ in ids]
        known = await self._store.tags(self._connection, metric, ids, steps)
        return [known.get(key) or {} for key in zip(ids, steps, strict=True)]


def _with_own_pod(stream: Stream) -> Stream:
    """The stream without a pod where the pods of a job share it, and it has that which began."""
    return stream._replace(pod_uid="", pod_name="") if stream.data_source == LOG_SOURCE else stream
