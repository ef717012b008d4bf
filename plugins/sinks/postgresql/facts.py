"""Writes evidence, detections, events, pods and diagnoses."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from lens_core import Detection, Diagnosis, Event, Evidence, Pod

from .grouping import StreamKey, SubjectKey
from .identity import Connection, StreamId
from .text import clean, jsonb, microseconds

# "Deleted" is what collectors say of a pod, or of a Slurm job, that is there no more.
_ENDED_PHASES = ("Succeeded", "Failed", "Deleted")

KEPT_REPORTS = 16
_SUBJECTS = "(select subject_id from lens_name where uid = %(uid)s)"
_COLUMNS = "subject_id, node_type, node_rank, node_id, data_type"


def diagnosis_problem(record: Diagnosis) -> str | None:
    """Why a report cannot be stored; None when it can."""
    if any(abs(number) >= 2**31 for number in (record.node_rank, record.node_id)):
        return "node_rank or node_id does not fit in 32 bits"
    return None


async def write_diagnoses(
    connection: Connection,
    diagnoses: Sequence[tuple[SubjectKey, Diagnosis]],
    subjects: Mapping[SubjectKey, int],
    now_us: int,
) -> None:
    """Store reports and remove those that have become old; one that comes twice is one."""
    if not diagnoses:
        return
    rows = []
    for subject, record in diagnoses:
        content = clean(record.data_content)
        time_us = microseconds(record.timestamp) if record.timestamp > 0 else None
        digest = hashlib.sha256(f"{time_us}\0{content}".encode()).digest()
        node = (subjects[subject], clean(record.node_type), record.node_rank, record.node_id, clean(record.data_type))
        rows.append((*node, digest, now_us if time_us is None else time_us, content))
    async with connection.cursor() as cursor:
        await cursor.executemany(
            f"insert into lens_diagnosis ({_COLUMNS}, digest, event_time_us, content)"
            " values (%s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing",
            rows,
        )
    nodes = sorted({row[:5] for row in rows})
    await connection.execute(
        "delete from lens_diagnosis old using unnest(%s::bigint[], %s::text[], %s::int[], %s::int[], %s::text[])"
        f" node ({_COLUMNS}) where (old.subject_id, old.node_type, old.node_rank, old.node_id, old.data_type)"
        " = (node.subject_id, node.node_type, node.node_rank, node.node_id, node.data_type) and old.id not in"
        " (select id from lens_diagnosis kept where (kept.subject_id, kept.node_type, kept.node_rank, kept.node_id,"
        " kept.data_type) = (node.subject_id, node.node_type, node.node_rank, node.node_id, node.data_type)"
        f" order by event_time_us desc, id desc limit {KEPT_REPORTS})",
        [list(column) for column in zip(*nodes, strict=True)],
    )


async def read_diagnoses(connection: Connection, uid: str, data_type: str) -> list[Diagnosis]:
    """The newest reports about a workload, oldest first; `data_type` '' means all."""
    cursor = await connection.execute(
        "select node_type, node_rank, node_id, data_type, event_time_us, content from lens_diagnosis"
        f" where subject_id in {_SUBJECTS} and (%(type)s = '' or data_type = %(type)s) order by event_time_us, id",
        {"uid": uid, "type": data_type},
    )
    return [
        Diagnosis(
            node_type=row[0],
            node_rank=row[1],
            node_id=row[2],
            data_type=row[3],
            timestamp=row[4] / 1e6,
            data_content=row[5],
        )
        for row in await cursor.fetchall()
    ]


async def write_events(
    connection: Connection,
    events: Iterable[tuple[SubjectKey, StreamKey, Event]],
    subjects: Mapping[SubjectKey, int],
    streams: Mapping[StreamKey, StreamId],
    now_us: int,
) -> None:
    """Store events; two that say the same of the same time and the same pod are one."""
    rows = []
    for subject, stream, event in events:
        details = jsonb(event.details)
        attempt = streams[stream].attempt if stream in streams else event.attempt
        time_us = microseconds(event.event_time)
        where = (event.origin.rank, event.origin.pod_name)
        said = (event.type, event.data_source, event.run_id, attempt, *where, event.iteration, time_us)
        digest = hashlib.sha256(repr(said).encode("utf-8", "replace") + details).digest()
        rows.append(
            (
                subjects[subject],
                digest,
                clean(event.type),
                clean(event.data_source),
                clean(event.run_id),
                attempt,
                event.origin.rank,
                event.iteration,
                now_us if time_us is None else time_us,
                details.decode(),
                clean(event.origin.pod_name),
                clean(event.origin.node),
            )
        )
    await _many(
        connection,
        "insert into lens_event (subject_id, digest, type, data_source, run_id, attempt, rank, iteration,"
        " event_time_us, details, pod_name, node) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " on conflict (subject_id, digest) do nothing",
        rows,
    )


async def write_evidence(
    connection: Connection,
    evidence: Iterable[tuple[SubjectKey, Evidence]],
    subjects: Mapping[SubjectKey, int],
    now_us: int,
) -> None:
    """Keep the newest evidence of each source and run."""
    newest = _newest(((subjects[subject], clean(r.source), clean(r.run_id)), r) for subject, r in evidence)
    rows = [
        (*key, clean(record.session), _time(record.event_time, now_us), jsonb(record.facts).decode())
        for key, record in newest
    ]
    await _many(
        connection,
        "insert into lens_evidence as known (subject_id, source, run_id, session, event_time_us, facts)"
        " values (%s, %s, %s, %s, %s, %s) on conflict (subject_id, source, run_id) do update"
        " set session = excluded.session, event_time_us = excluded.event_time_us, facts = excluded.facts"
        " where known.event_time_us <= excluded.event_time_us",
        rows,
    )


async def write_detections(
    connection: Connection,
    detections: Iterable[tuple[SubjectKey, Detection]],
    subjects: Mapping[SubjectKey, int],
    now_us: int,
) -> None:
    """Keep the newest opinion of each source, layer, framework and method."""
    newest = _newest(
        ((subjects[subject], *map(clean, (r.source, r.layer, r.framework, r.method))), r) for subject, r in detections
    )
    rows = [
        (*key, record.confidence, _time(record.event_time, now_us), jsonb(record.facts).decode())
        for key, record in newest
    ]
    await _many(
        connection,
        "insert into lens_detection as known (subject_id, source, layer, framework, method, confidence,"
        " event_time_us, facts) values (%s, %s, %s, %s, %s, %s, %s, %s)"
        " on conflict (subject_id, source, layer, framework, method) do update"
        " set confidence = excluded.confidence, event_time_us = excluded.event_time_us, facts = excluded.facts"
        " where known.event_time_us <= excluded.event_time_us",
        rows,
    )


async def write_pods(connection: Connection, pods: Sequence[Pod], cluster: str, now_us: int) -> None:
    """Write the workloads of pods, and the ancestors of these."""
    memberships: dict[tuple[str, ...], tuple[Any, ...]] = {}
    lineage: set[tuple[str, str, str]] = set()
    for pod in pods:
        where = clean(pod.origin.cluster) or cluster
        uid, namespace, name = clean(pod.uid), clean(pod.namespace), clean(pod.name)
        for workload in pod.workloads:
            texts = (workload.uid, workload.name, workload.kind, workload.parent_uid, workload.namespace)
            work = tuple(map(clean, texts))
            memberships[work[0], where, uid, namespace, name] = (
                *(where, uid, namespace, name),
                *work,
                *(clean(pod.node), now_us, now_us),
            )
        lineage.update((where, ancestor, below) for ancestor, below in _lineage(pod))
    await _many(
        connection,
        "insert into lens_membership as known (cluster, pod_uid, namespace, pod_name, workload_uid, workload_name,"
        " kind, parent_uid, workload_namespace, node, first_seen_us, last_seen_us)"
        " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " on conflict (workload_uid, cluster, pod_uid, namespace, pod_name) do update"
        " set workload_name = excluded.workload_name, kind = excluded.kind, parent_uid = excluded.parent_uid,"
        " workload_namespace = excluded.workload_namespace, node = excluded.node,"
        " last_seen_us = greatest(known.last_seen_us, excluded.last_seen_us)",
        [memberships[key] for key in sorted(memberships)],
    )
    await _write_pod_spans(connection, pods, cluster, now_us)
    await _many(
        connection,
        "insert into lens_lineage (cluster, ancestor_uid, workload_uid) values (%s, %s, %s) on conflict do nothing",
        sorted(lineage),
    )


async def _write_pod_spans(connection: Connection, pods: Iterable[Pod], cluster: str, now_us: int) -> None:
    """Open a span for pods that run, and close it when they have ended; a batch's newest word about a pod counts."""
    newest = {
        (clean(pod.origin.cluster) or cluster, clean(pod.uid), clean(pod.namespace), clean(pod.name)): pod
        for pod in pods
        if pod.workloads
    }
    running = [(key, pod) for key, pod in sorted(newest.items(), key=itemgetter(0)) if pod.phase == "Running"]
    ended = [key for key, pod in sorted(newest.items(), key=itemgetter(0)) if pod.phase in _ENDED_PHASES]
    await _many(
        connection,
        "insert into lens_pod_span (cluster, pod_uid, namespace, pod_name, from_us, gpus)"
        " values (%s, %s, %s, %s, %s, %s) on conflict do nothing",
        [(*key, now_us, len(pod.devices) or None) for key, pod in running],
    )
    await _many(
        connection,
        "update lens_pod_span set until_us = %s where cluster = %s and pod_uid = %s and namespace = %s"
        " and pod_name = %s and until_us is null",
        [(now_us, *key) for key in ended],
    )


async def write_told_memberships(connection: Connection, told: Iterable[tuple[str, str, str]], now_us: int) -> None:
    """Store what senders say that know both: this pod (uid) belongs to this workload; no feed is overruled."""
    await _many(
        connection,
        "insert into lens_membership (cluster, pod_uid, namespace, pod_name, workload_uid, workload_name, kind,"
        " parent_uid, workload_namespace, node, first_seen_us, last_seen_us)"
        " select cluster, pod_uid, '', '', workload_uid, '', '', '', '', '', now_us, now_us"
        " from (values (%s::text, %s::text, %s::text, %s::bigint)) told (cluster, pod_uid, workload_uid, now_us)"
        " where not exists (select from lens_membership known where known.workload_uid = told.workload_uid"
        " and known.cluster = told.cluster and known.pod_uid = told.pod_uid) on conflict do nothing",
        [(*one, now_us) for one in sorted(told)],
    )


def _lineage(pod: Pod) -> set[tuple[str, str]]:
    """(ancestor, workload) for every workload of a pod, parents followed upward; a circle ends where it began."""
    parents = {clean(workload.uid): clean(workload.parent_uid) for workload in pod.workloads}
    pairs = set()
    for uid in parents:
        ancestor, passed = parents[uid], {uid}
        while ancestor and ancestor not in passed:
            pairs.add((ancestor, uid))
            passed.add(ancestor)
            ancestor = parents.get(ancestor, "")
    return pairs


_Fact = TypeVar("_Fact", Evidence, Detection)


def _newest(facts: Iterable[tuple[tuple[Any, ...], _Fact]]) -> list[tuple[tuple[Any, ...], _Fact]]:
    """Of each key the newest, of equally old ones the last: all ranks of a job say the same when it starts.

    In the order of the keys, so that two daemons never wait for each other's rows.
    """
    found: dict[tuple[Any, ...], _Fact] = {}
    for key, record in facts:
        known = found.get(key)
        if known is None or _when(known) <= _when(record):
            found[key] = record
    return sorted(found.items(), key=lambda item: item[0])


def _when(fact: Evidence | Detection) -> float:
    """Return the time that it says; now, where it says none."""
    return math.inf if fact.event_time is None else fact.event_time


def _time(seconds: float | None, now_us: int) -> int:
    known = microseconds(seconds)
    return now_us if known is None else known


async def _many(connection: Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        async with connection.cursor() as cursor:
            await cursor.executemany(statement, rows)
