"""Removal of a workload or a run on request: rows, blocks, catalogue, events and facts, portion by portion."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from lens_core import Origin, Unavailable
from lens_core.plugin_api.store import measured_uid

from .identity import Connection
from .point_store import PointStore, StreamSize

_EVENTS_AT_ONCE = 20_000
_MOST_TRIES = 20
_NEVER_TOO_NEW = 2**62


async def origins(connection: Connection, uid: str) -> list[Origin]:
    """The workloads and pods whose records are shown under a uid, members without rows included."""
    cursor = await connection.execute(
        "select workload_uid, pod_uid, namespace, pod_name from lens_subject"
        " where id in (select subject_id from lens_name where uid = %(uid)s)"
        " union select '', pod_uid, namespace, pod_name from lens_membership where workload_uid = %(uid)s",
        {"uid": uid},
    )
    return [
        Origin(workload_uid=workload, pod_uid=pod, namespace=namespace, pod_name=name)
        for workload, pod, namespace, name in await cursor.fetchall()
    ]


async def delete_workload(connection: Connection, store: PointStore, uid: str) -> dict[str, int] | None:
    """Remove everything that is shown under a uid; how much it was, None when nothing is known about it."""
    cursor = await connection.execute(
        "select id, workload_uid, pod_uid from lens_subject"
        " where id in (select subject_id from lens_name where uid = any(%s)) order by id",
        [[uid, measured_uid(Origin(workload_uid=uid))]],
    )
    subjects = await cursor.fetchall()
    if not subjects:
        return None
    ids = [row[0] for row in subjects]
    found = await _remove(connection, store, {"subjects": ids, "run": None})
    workloads = sorted({uid, *(row[1] for row in subjects if row[1])})
    pods = [row[2] for row in subjects if row[2] and not row[1]]
    async with connection.transaction():
        await connection.execute("delete from lens_subject where id = any(%s)", [ids])
        await connection.execute(
            "delete from lens_pod_span p using lens_membership m where m.cluster = p.cluster"
            " and m.pod_uid = p.pod_uid and m.namespace = p.namespace and m.pod_name = p.pod_name"
            " and m.workload_uid = any(%s)",
            [workloads],
        )
        await connection.execute(
            "delete from lens_membership where workload_uid = any(%s) or pod_uid = any(%s)", [workloads, pods]
        )
        await connection.execute(
            "delete from lens_lineage where workload_uid = any(%s) or ancestor_uid = any(%s)", [workloads, workloads]
        )
    return found


async def delete_run(connection: Connection, store: PointStore, uid: str, run_id: str) -> dict[str, int] | None:
    """Remove a run of a workload; how much it was, None when there is no such run."""
    cursor = await connection.execute("select distinct subject_id from lens_name where uid = %s", [uid])
    of_run = {"subjects": [row[0] for row in await cursor.fetchall()], "run": run_id}
    found = await _remove(connection, store, of_run)
    facts = 0
    async with connection.transaction():
        for table in ("lens_evidence", "lens_attempt"):
            removed = await connection.execute(
                f"delete from {table} where subject_id = any(%(subjects)s) and run_id = %(run)s".encode(), of_run
            )
            facts += removed.rowcount
        await connection.execute(b"update lens_subject set version = version + 1 where id = any(%(subjects)s)", of_run)
    return found if facts or any(found.values()) else None


async def _remove(connection: Connection, store: PointStore, what: Mapping[str, Any]) -> dict[str, int]:
    """Remove attempts and events of subjects; `run` None means all runs."""
    cursor = await connection.execute(
        "select id, subject_id from lens_stream where subject_id = any(%(subjects)s)"
        " and (%(run)s::text is null or run_id = %(run)s) order by id",
        what,
    )
    streams: Sequence[tuple[int, int]] = await cursor.fetchall()
    rows = sum([await _remove_stream(connection, store, stream_id, subject) for stream_id, subject in streams])
    events = 0
    while count := await _remove_events(connection, what):
        events += count
    return {"attempts_removed": len(streams), "rows_removed": rows, "events_removed": events}


async def _remove_stream(connection: Connection, store: PointStore, stream_id: int, subject_id: int) -> int:
    """Remove an attempt whatever its age. Raises Unavailable when it is written to faster than it can be removed."""
    stream = StreamSize(stream_id, subject_id, "", "", _NEVER_TOO_NEW, 0)
    rows = 0
    for _ in range(_MOST_TRIES):
        removed, is_gone = await store.remove_attempt(connection, stream, time.time_ns() // 1000)
        rows += removed
        if is_gone or not await _exists(connection, stream_id):
            return rows
    raise Unavailable("the workload is being written to; stop it, then delete it again", retry_after_seconds=5)


async def _exists(connection: Connection, stream_id: int) -> bool:
    cursor = await connection.execute("select from lens_stream where id = %s", [stream_id])
    return await cursor.fetchone() is not None


async def _remove_events(connection: Connection, what: Mapping[str, Any]) -> int:
    cursor = await connection.execute(
        "delete from lens_event where id in (select id from lens_event where subject_id = any(%(subjects)s)"
        " and (%(run)s::text is null or run_id = %(run)s) limit %(most)s)",
        {**what, "most": _EVENTS_AT_ONCE},
    )
    return cursor.rowcount
