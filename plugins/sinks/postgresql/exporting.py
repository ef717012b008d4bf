"""The whole database, or one workload, as records: what another Lens stores again without a difference."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import msgspec

from lens_core import (
    SHOWN_NAME_LABEL,
    Detection,
    Diagnosis,
    Event,
    Evidence,
    Origin,
    Pod,
    Record,
    StepMetrics,
    WorkloadReference,
)
from lens_core.plugin_api.store import metric_name

from .blocks import HIGHEST_STEP, LOWEST_STEP
from .database import Database
from .echoes import echoes_of
from .grouping import LOG_SOURCE
from .identity import Connection
from .point_store import PointStore
from .rows import StoredRow

_PIECE = 2_000


async def export_records(
    database: Database, store: PointStore, workload_uid: str
) -> AsyncGenerator[list[Record], None]:
    """Pods, then for each subject its rows, events, evidence and detections; '' for everything. In one snapshot."""
    async with database.reading() as connection, connection.transaction():
        yield list(await _pods(connection, workload_uid))
        for subject_id, origin in await _subjects(connection, workload_uid):
            cursor = await connection.execute(
                "select id, data_source, run_id, attempt, rank, pod_uid, pod_name, node, world_size from lens_stream"
                " where subject_id = %s order by id",
                [subject_id],
            )
            for stream in await cursor.fetchall():
                first = LOWEST_STEP
                shared = stream[1] == LOG_SOURCE
                echoes = await echoes_of(connection, stream[0])
                while rows := await store.stored_rows(connection, stream[0], first, _PIECE, shared_by_ranks=shared):
                    written = (record for row in rows for record in _versions(origin, stream, *row))
                    yield [part for record in written for part in _by_echo(record, echoes)]
                    if rows[-1][0] == HIGHEST_STEP:
                        break
                    first = rows[-1][0] + 1
            yield await _facts(connection, subject_id, origin)


async def _subjects(connection: Connection, uid: str) -> list[tuple[int, Origin]]:
    condition = " where id in (select subject_id from lens_name where uid = %(uid)s)" if uid else ""
    cursor = await connection.execute(
        "select id, cluster, workload_uid, pod_uid, namespace, pod_name, name"
        f" from lens_subject{condition} order by id".encode(),
        {"uid": uid},
    )
    return [
        (
            row[0],
            Origin(
                cluster=row[1],
                workload_uid=row[2],
                pod_uid=row[3],
                namespace=row[4],
                pod_name=row[5],
                labels={SHOWN_NAME_LABEL: row[6]} if row[6] and row[6] != row[5] else {},
            ),
        )
        for row in await cursor.fetchall()
    ]


def _versions(origin: Origin, stream: tuple[Any, ...], step: int, row: StoredRow) -> Iterator[StepMetrics]:
    """A row as the writes that made it: what was overwritten first, the newest last."""
    _, source, run_id, attempt, stream_rank, pod_uid, pod_name, node, world_size = stream
    sequence, rank, iteration, first_us, updated_us, stored, tags, key_sequences, history = row
    metrics = dict(stored)
    shared = source == LOG_SOURCE
    tags = tags or {}

    def make_row(number: int, of_rank: int | None, values: dict[str, Any], time_us: int | None) -> StepMetrics:
        who = of_rank if shared else (None if stream_rank < 0 else stream_rank)
        return StepMetrics(
            origin=msgspec.structs.replace(
                _with_rank(origin, pod_uid, pod_name, who), node=node or origin.node, world_size=world_size
            ),
            data_source=source,
            run_id=run_id,
            attempt=attempt,
            row_step=step,
            iteration=iteration,
            event_time=None if time_us is None else time_us / 1e6,
            sequence=number,
            values={metric_name(name): float(value) for name, value in values.items()},
            tags={metric_name(name): dict(tags[name]) for name in values if name in tags},
        )

    for entry in history or []:
        yield make_row(entry["sequence"], entry.get("rank"), entry["values"], first_us)
    others: dict[tuple[int | None, int], dict[str, Any]] = {}
    for name, (of_rank, number) in (key_sequences or {}).items():
        others.setdefault((of_rank, number), {})[name] = metrics.pop(name)
    for (of_rank, number), values in others.items():
        yield make_row(number, of_rank, values, first_us)
    yield make_row(sequence, rank, metrics, first_us if updated_us is None else updated_us)
    if updated_us is not None and not history and not others:
        yield make_row(sequence, rank, metrics, first_us)


def _by_echo(record: StepMetrics, echoes: Mapping[str, str]) -> Iterator[StepMetrics]:
    """A write in one part for each of what its metrics are echoes of, and one for those that are none."""
    if echoes.keys().isdisjoint(record.values):
        yield record
        return
    parts: dict[str, dict[str, float]] = {}
    for name, value in record.values.items():
        parts.setdefault(echoes.get(name, ""), {})[name] = value
    for of, values in parts.items():
        tags = {name: tags for name, tags in record.tags.items() if name in values}
        yield msgspec.structs.replace(record, values=values, tags=tags, echo_of=of)


def _with_rank(origin: Origin, pod_uid: str, pod_name: str, rank: int | None) -> Origin:
    return Origin(
        cluster=origin.cluster,
        workload_uid=origin.workload_uid,
        pod_uid=pod_uid or origin.pod_uid,
        namespace=origin.namespace,
        pod_name=pod_name or origin.pod_name,
        labels=origin.labels,
        rank=rank,
    )


async def _facts(connection: Connection, subject_id: int, origin: Origin) -> list[Record]:
    records: list[Record] = []
    cursor = await connection.execute(
        "select type, data_source, run_id, attempt, iteration, event_time_us, details, rank, pod_name, node"
        " from lens_event"
        " where subject_id = %s order by id",
        [subject_id],
    )
    for kind, source, run_id, attempt, iteration, time_us, details, rank, pod_name, node in await cursor.fetchall():
        where = {"rank": rank, "pod_name": pod_name or origin.pod_name, "node": node}
        records.append(
            Event(
                origin=msgspec.structs.replace(origin, **where),
                type=kind,
                data_source=source,
                run_id=run_id,
                attempt=attempt,
                iteration=iteration,
                event_time=time_us / 1e6,
                details=details,
            )
        )
    cursor = await connection.execute(
        "select source, run_id, session, event_time_us, facts from lens_evidence where subject_id = %s", [subject_id]
    )
    for source, run_id, session, time_us, facts in await cursor.fetchall():
        about = {"source": source, "run_id": run_id, "session": session, "facts": facts}
        records.append(Evidence(origin=origin, event_time=time_us / 1e6, **about))
    cursor = await connection.execute(
        "select source, layer, framework, method, confidence, event_time_us, facts from lens_detection"
        " where subject_id = %s",
        [subject_id],
    )
    for source, layer, framework, method, confidence, time_us, facts in await cursor.fetchall():
        opinion = {"source": source, "layer": layer, "framework": framework, "method": method}
        records.append(
            Detection(origin=origin, confidence=confidence, event_time=time_us / 1e6, facts=facts, **opinion)
        )
    return [*records, *await _diagnoses(connection, subject_id, origin)]


async def _diagnoses(connection: Connection, subject_id: int, origin: Origin) -> list[Diagnosis]:
    cursor = await connection.execute(
        "select node_type, node_rank, node_id, data_type, event_time_us, content from lens_diagnosis"
        " where subject_id = %s order by event_time_us, id",
        [subject_id],
    )
    return [
        Diagnosis(
            origin=origin,
            node_type=row[0],
            node_rank=row[1],
            node_id=row[2],
            data_type=row[3],
            timestamp=row[4] / 1e6,
            data_content=row[5],
        )
        for row in await cursor.fetchall()
    ]


async def _pods(connection: Connection, uid: str) -> list[Pod]:
    condition = (
        " where (cluster, pod_uid, namespace, pod_name) in"
        " (select cluster, pod_uid, namespace, pod_name from lens_membership where workload_uid = %(uid)s)"
        if uid
        else ""
    )
    cursor = await connection.execute(
        "select cluster, pod_uid, namespace, pod_name, node, workload_uid, workload_name, kind, workload_namespace,"
        f" parent_uid from lens_membership{condition} order by 1, 2, 3, 4, 6".encode(),
        {"uid": uid},
    )
    pods: dict[tuple[str, ...], list[WorkloadReference]] = {}
    for row in await cursor.fetchall():
        reference = WorkloadReference(uid=row[5], name=row[6], kind=row[7], namespace=row[8], parent_uid=row[9])
        pods.setdefault(tuple(row[:5]), []).append(reference)
    return [
        Pod(origin=Origin(cluster=key[0]), uid=key[1], namespace=key[2], name=key[3], node=key[4], workloads=workloads)
        for key, workloads in pods.items()
    ]
