"""Subjects, attempts and streams: from keys to the ids of the database, made on first sight.

Making one is a transaction of its own, before the rows': it is idempotent, harmless if the rows never come, and holds
no lock while rows are written. The ids used last are cached; several daemons may do this at one time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import psycopg

from .grouping import StreamKey, StreamPlace, Subject, SubjectKey

Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]
# Entries of each cache. A job of 100,000 ranks writes one stream, or a few, for each of them, one after the other: a
# cache that cannot hold them all finds none again. An entry takes some 700 bytes.
_CACHED = 400_000


class StreamId(NamedTuple):
    """A stream and its subject in the database, and the attempt's number."""

    stream_id: int
    subject_id: int
    attempt: int


class Identities:
    """The ids of subjects and streams."""

    def __init__(self) -> None:
        self._subjects: OrderedDict[SubjectKey, int] = OrderedDict()
        self._named: set[SubjectKey] = set()
        self._streams: OrderedDict[StreamKey, StreamId] = OrderedDict()

    def clear_cache(self) -> None:
        """Empty the cache: something in it has been removed from the database."""
        self._subjects.clear()
        self._named.clear()
        self._streams.clear()

    def trim(self) -> None:
        """Evict the ids that were used longest ago; not while ids are in use."""
        _evict(self._streams)
        gone = _evict(self._subjects)
        self._named.difference_update(gone)

    async def subjects(self, connection: Connection, wanted: Mapping[SubjectKey, Subject]) -> Mapping[SubjectKey, int]:
        """The ids of these subjects; one that had no name, or a pod's, takes the first that its job gives."""
        missing = {key: subject for key, subject in wanted.items() if not self._is_known(key, subject)}
        if missing:
            async with connection.transaction():
                found = await _make_subjects(connection, missing.values())
            self._subjects.update(found)
            self._named.update(key for key, subject in missing.items() if subject.is_named)
        _mark_used(self._subjects, wanted)
        return self._subjects

    def _is_known(self, key: SubjectKey, subject: Subject) -> bool:
        return key in self._subjects and (not subject.is_named or key in self._named)

    async def streams(
        self, connection: Connection, subjects: Mapping[SubjectKey, Subject], wanted: Mapping[StreamKey, StreamPlace]
    ) -> Mapping[StreamKey, StreamId]:
        """The ids of these streams (with the place that writes each); a session never seen becomes the next attempt."""
        missing = [key for key in wanted if key not in self._streams]
        if missing:
            subject_ids = await self.subjects(connection, subjects)
            async with connection.transaction():
                attempts = await _number_attempts(connection, subject_ids, missing)
                made = await _make_streams(connection, subject_ids, attempts, wanted)
            self._streams.update(made)
        _mark_used(self._streams, wanted)
        return self._streams


Key = TypeVar("Key")


def _mark_used(cache: OrderedDict[Key, Any], keys: Iterable[Key]) -> None:
    """Move entries to the end of a cache, where the newest are."""
    for key in keys:
        if key in cache:
            cache.move_to_end(key)


def _evict(cache: OrderedDict[Key, Any]) -> list[Key]:
    """Remove the oldest entries of a cache that holds too many; returns their keys."""
    return [cache.popitem(last=False)[0] for _ in range(len(cache) - _CACHED)]


async def _make_subjects(connection: Connection, subjects: Iterable[Subject]) -> dict[SubjectKey, int]:
    columns = list(zip(*sorted(subjects), strict=True))
    await connection.execute(
        "insert into lens_subject (cluster, key, workload_uid, pod_uid, namespace, pod_name, name)"
        " select * from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])"
        " on conflict (cluster, key) do update set name = excluded.name"
        " where lens_subject.name in ('', lens_subject.pod_name) and excluded.name not in ('', excluded.pod_name)",
        [list(column) for column in columns],
    )
    cursor = await connection.execute(
        "select s.cluster, s.key, s.id from lens_subject s"
        " join unnest(%s::text[], %s::text[]) k (cluster, key) on s.cluster = k.cluster and s.key = k.key",
        [list(columns[0]), list(columns[1])],
    )
    return {SubjectKey(cluster, key): int(identity) for cluster, key, identity in await cursor.fetchall()}


async def _number_attempts(
    connection: Connection, subject_ids: Mapping[SubjectKey, int], keys: Iterable[StreamKey]
) -> dict[StreamKey, int]:
    """The attempt of each key: its own, 1 without a session, else the session's number (in order of first sight)."""
    numbers = {key: key.attempt if key.attempt is not None else 1 for key in keys}
    sessions = [key for key in numbers if key.session]
    if not sessions:
        return numbers
    ids = sorted({subject_ids[key.subject] for key in sessions})
    # The lock makes numbering one daemon's work at a time for each subject.
    await connection.execute("select id from lens_subject where id = any(%s) order by id for update", [ids])
    groups = {key: _Group(subject_ids[key.subject], key.data_source, key.run_id, key.rank) for key in keys}
    asked = {groups[key] for key in sessions}
    known = await _known_sessions(connection, asked)
    highest = await _highest_attempts(connection, asked)
    for key, group in groups.items():
        if not key.session:
            highest[group] = max(numbers[key], highest.get(group, 0))
    fresh: dict[tuple[_Group, str], int] = {}
    for key in sessions:
        session = (groups[key], key.session)
        number = known.get(session)
        if number is None:
            number = known[session] = fresh[session] = highest.get(groups[key], 0) + 1
            highest[groups[key]] = number
        numbers[key] = number
    if fresh:
        await connection.execute(
            "insert into lens_attempt (subject_id, data_source, run_id, rank, session, attempt)"
            " select * from unnest(%s::bigint[], %s::text[], %s::text[], %s::int[], %s::text[], %s::int[])",
            _columns_of((*group, session, number) for (group, session), number in fresh.items()),
        )
    return numbers


class _Group(NamedTuple):
    """Within which sessions are numbered."""

    subject_id: int
    data_source: str
    run_id: str
    rank: int


# Each by itself, out of an index: a job of ten thousand ranks comes in hundreds of batches, and what all other ranks
# have need not be read for any of them.
_OF_GROUPS = "unnest(%s::bigint[], %s::text[], %s::text[], %s::int[]) k (subject_id, data_source, run_id, rank)"


async def _known_sessions(connection: Connection, groups: Iterable[_Group]) -> dict[tuple[_Group, str], int]:
    cursor = await connection.execute(
        f"select k.*, a.session, a.attempt from {_OF_GROUPS} cross join lateral"
        " (select session, attempt from lens_attempt a where a.subject_id = k.subject_id"
        " and a.data_source = k.data_source and a.run_id = k.run_id and a.rank = k.rank) a".encode(),
        _columns_of(groups),
    )
    return {(_Group(*row[:4]), row[4]): row[5] for row in await cursor.fetchall()}


async def _highest_attempts(connection: Connection, groups: Iterable[_Group]) -> dict[_Group, int]:
    """Numbers in use, those that producers gave themselves included."""
    newest = (
        "(select max(attempt) from {} t where t.subject_id = k.subject_id and t.data_source = k.data_source"
        " and t.run_id = k.run_id and t.rank = k.rank)"
    )
    cursor = await connection.execute(
        f"select k.*, greatest({newest.format('lens_attempt')}, {newest.format('lens_stream')}, 0)"
        f" from {_OF_GROUPS}".encode(),
        _columns_of(groups),
    )
    return {_Group(*row[:4]): row[4] for row in await cursor.fetchall()}


async def _make_streams(
    connection: Connection,
    subject_ids: Mapping[SubjectKey, int],
    attempts: Mapping[StreamKey, int],
    place_of: Mapping[StreamKey, StreamPlace],
) -> dict[StreamKey, StreamId]:
    identities = {
        key: (subject_ids[key.subject], key.data_source, key.run_id, attempt, key.rank)
        for key, attempt in attempts.items()
    }
    places = {identity: place_of[key] for key, identity in reversed(identities.items())}
    found = await _stream_ids(connection, places)
    missing = sorted(identity for identity in places if identity not in found)
    if missing:
        # Only what is missing: "on conflict" waits for a transaction that changes the stream, which may be waiting for
        # the lock on the subject that this one holds.
        await connection.execute(
            "insert into lens_stream (subject_id, data_source, run_id, attempt, rank, pod_uid, pod_name, node,"
            " world_size) select * from unnest(%s::bigint[], %s::text[], %s::text[], %s::int[], %s::int[], %s::text[],"
            " %s::text[], %s::text[], %s::int[])"
            " on conflict (subject_id, data_source, run_id, attempt, rank) do nothing",
            [*_columns_of(missing), *_columns_of(places[identity] for identity in missing)],
        )
        found.update(await _stream_ids(connection, missing))
    return {key: StreamId(found[identity], identity[0], identity[3]) for key, identity in identities.items()}


async def _stream_ids(connection: Connection, identities: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], int]:
    cursor = await connection.execute(
        "select s.subject_id, s.data_source, s.run_id, s.attempt, s.rank, s.id from lens_stream s"
        " join unnest(%s::bigint[], %s::text[], %s::text[], %s::int[], %s::int[])"
        " k (subject_id, data_source, run_id, attempt, rank) using (subject_id, data_source, run_id, attempt, rank)",
        _columns_of(identities),
    )
    return {tuple(row[:5]): int(row[5]) for row in await cursor.fetchall()}


def _columns_of(identities: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*identities, strict=True)]
