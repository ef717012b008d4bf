"""Removal of what belongs to a deleted workload or run from a spool: a mark for what waits, deletion of dead letters.

A batch that waits is not rewritten, because cursors count its records. A mark says instead which records of the batches
up to its own are not to be sent any more; it is durable, holds for every sink, and goes with the last of these batches.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from ..model.records import Detection, Origin, Pod, Record


class PodName(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The names by which records know a pod; `uid` is empty where nobody knows it."""

    uid: str
    namespace: str
    name: str


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted workload (`run_id` None) or run: its records in batches up to `last_batch` are not sent."""

    workload_uids: Sequence[str]
    pods: Sequence[PodName] = ()
    run_id: str | None = None
    last_batch: int = 0

    def covers(self, record: Record) -> bool:
        """Whether a record belongs to what was deleted; says nothing about when it was accepted."""
        if self.run_id is not None:
            return getattr(record, "run_id", None) == self.run_id and self.is_origin(record.origin)
        if isinstance(record, Pod):
            return any(workload.uid in self.workload_uids for workload in record.workloads)
        named = isinstance(record, Detection) and record.workload_uid in self.workload_uids
        return named or self.is_origin(record.origin)

    def is_origin(self, origin: Origin) -> bool:
        """Whether records of this origin are shown under what was deleted."""
        if origin.workload_uid:
            return origin.workload_uid in self.workload_uids
        return any(_is_pod(origin, pod) for pod in self.pods)


def _is_pod(origin: Origin, pod: PodName) -> bool:
    if origin.pod_uid and pod.uid:
        return origin.pod_uid == pod.uid
    return bool(pod.name) and (origin.namespace, origin.pod_name) == (pod.namespace, pod.name)


def pods_told(records: Iterable[Record], workload_uids: Iterable[str]) -> set[PodName]:
    """The pods that these records say belong to one of the workloads."""
    wanted = set(workload_uids)
    found: set[PodName] = set()
    for record in records:
        if isinstance(record, Pod):
            if any(workload.uid in wanted for workload in record.workloads):
                found.add(PodName(record.uid, record.namespace, record.name))
        elif record.origin.workload_uid in wanted and record.origin.pod_uid:
            found.add(PodName(record.origin.pod_uid, record.origin.namespace, record.origin.pod_name))
    return found


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Erasure)


def begin_erasure(connection: sqlite3.Connection, erasure: Erasure) -> Erasure:
    """Store a mark for everything that the file holds now, and return it with its last batch."""
    newest = connection.execute("SELECT coalesce(max(id), 0) FROM batches").fetchone()[0]
    marked = msgspec.structs.replace(erasure, last_batch=int(newest))
    write_erasure(connection, marked)
    return marked


def write_erasure(connection: sqlite3.Connection, erasure: Erasure) -> None:
    """Store a mark as it is."""
    connection.execute(
        "INSERT INTO erasures (last_batch, body) VALUES (?, ?)", (erasure.last_batch, _encoder.encode(erasure))
    )


def read_erasures(connection: sqlite3.Connection) -> list[Erasure]:
    """The marks that some batch of the file may still need; the others are deleted."""
    connection.execute(
        "DELETE FROM erasures WHERE last_batch < (SELECT coalesce(min(id), last_batch + 1) FROM batches)"
    )
    return [_decoder.decode(body) for (body,) in connection.execute("SELECT body FROM erasures ORDER BY id")]
