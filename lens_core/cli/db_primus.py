"""Rows of an upstream Primus Lens database (`training_performance`), with what is known to be wrong with them mended.

- Rows that were stored once more for each ancestor of their workload are left out, where `gpu_workload` tells so.
- What a row of wandb has overwritten stands in `history`; each version is a write of its own source again.
- The attempt is `serial`, which wandb and TensorBoard do not count: 0 becomes 1.
- Fields that describe the row, texts and nested values are no metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import psycopg

from ..base.errors import LensError
from ..model.records import Origin, Pod, Record, StepMetrics, WorkloadReference

# Seed 000, 3.2.1, and what TensorBoard's rows have beside their metrics.
_NO_METRICS = frozenset(
    {"source", "run_id", "step", "history", "created_at", "updated_at", "wall_time", "file", "scalars", "texts"}
)
_COLUMNS = "id, workload_uid, pod_uuid, serial, iteration, data_source::text, performance, created_at"
_SPECIAL = frozenset({"nan", "inf", "infinity"})
_AT_ONCE = 5_000


def read_primus_lens(dsn: str) -> Iterator[Record]:
    """Pods with their workloads, then rows. Raises LensError."""
    try:
        with psycopg.connect(dsn) as connection:
            connection.read_only = True
            parents = _workloads(connection)
            repeated, pods = _hierarchy(connection, parents)
            yield from pods
            with connection.cursor(name="rows") as cursor:
                cursor.itersize = _AT_ONCE
                cursor.execute(f"select {_COLUMNS} from training_performance order by id".encode())
                for row in cursor:
                    if (row[1], row[2]) not in repeated:
                        yield from _versions(row)
    except psycopg.Error as error:
        said = error.diag.message_primary or type(error).__name__
        raise LensError(f"the Primus Lens database cannot be read: {said}") from None


def _workloads(connection: psycopg.Connection[tuple[Any, ...]]) -> dict[str, WorkloadReference]:
    found = connection.execute("select to_regclass('gpu_workload') is not null").fetchone()
    if found is None or not found[0]:
        return {}
    rows = connection.execute("select uid, name, kind, namespace, parent_uid from gpu_workload where uid is not null")
    return {
        row[0]: WorkloadReference(
            uid=row[0], name=row[1] or "", kind=row[2] or "", namespace=row[3] or "", parent_uid=row[4] or ""
        )
        for row in rows
    }


def _hierarchy(
    connection: psycopg.Connection[tuple[Any, ...]], workloads: Mapping[str, WorkloadReference]
) -> tuple[set[tuple[str, str]], list[Pod]]:
    """Which rows (workload, pod) only repeat those of a workload below, and what the pods belong to."""
    by_pod: dict[str, set[str]] = {}
    for uid, pod in connection.execute(
        "select distinct workload_uid, pod_uuid from training_performance where coalesce(pod_uuid, '') <> ''"
    ):
        by_pod.setdefault(pod, set()).add(uid)
    repeated = set()
    pods = []
    for pod, uids in sorted(by_pod.items()):
        known = {uid for uid in uids if uid in workloads}
        above = {ancestor for uid in known for ancestor in _ancestors(uid, workloads)}
        repeated |= {(uid, pod) for uid in uids & above}
        references = [workloads[uid] for uid in sorted(known | (above & workloads.keys()))]
        if references:
            pods.append(Pod(uid=pod, name="", namespace=references[0].namespace, workloads=references))
    return repeated, pods


def _ancestors(uid: str, workloads: Mapping[str, WorkloadReference]) -> set[str]:
    found: set[str] = set()
    parent = workloads[uid].parent_uid
    while parent and parent not in found and parent != uid:
        found.add(parent)
        parent = workloads[parent].parent_uid if parent in workloads else ""
    return found


def _versions(row: tuple[Any, ...]) -> Iterator[StepMetrics]:
    """What was overwritten first, then what holds."""
    identity, uid, pod, serial, iteration, source, performance, created_at = row
    if not isinstance(performance, dict) or not (uid or pod) or iteration is None:
        return
    origin = Origin(workload_uid=uid or "", pod_uid=pod or "")
    written = created_at.timestamp() if isinstance(created_at, datetime) else None
    history = [entry for entry in performance.get("history") or [] if isinstance(entry, dict)]
    for number, version in enumerate([*history, performance]):
        is_current = version is performance
        values = metrics_of(version)
        if not values:
            continue
        # A version that names no source was a row of a log before wandb took its place.
        of_source = source if is_current else str(version.get("source") or "log")
        step = version.get("step")
        moment = _moment(version.get("wall_time")) or _moment(version.get("updated_at")) or written
        yield StepMetrics(
            origin=origin,
            data_source=of_source or "log",
            run_id=str(version.get("run_id") or ""),
            attempt=max(1, serial or 1),
            row_step=step if type(step) is int else iteration,
            iteration=iteration,
            event_time=moment,
            sequence=identity * 10_000 + number,
            values=values,
        )


def metrics_of(performance: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row; NaN and the infinities may be texts."""
    values = {}
    for name, value in performance.items():
        if name in _NO_METRICS or isinstance(value, bool):
            continue
        is_special = isinstance(value, str) and value.strip().lower().lstrip("+-") in _SPECIAL
        if is_special or isinstance(value, int | float):
            values[name] = float(value)
    return values


def _moment(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
        except ValueError:
            return None
    return None
