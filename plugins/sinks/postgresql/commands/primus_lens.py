"""Rows of an upstream Primus Lens database (`training_performance`), with what is known to be wrong with them fixed.

- Rows that were stored once more for each ancestor of their workload are left out, where `gpu_workload` tells so and
  where the workload below has the same values: a row that was only stored under an ancestor is kept.
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

from lens_core import LensError, Origin, Pod, Record, StepMetrics, WorkloadReference

# Seed 000, 3.2.1, and what TensorBoard's rows have beside their metrics.
_NO_METRICS = frozenset(
    {"source", "run_id", "step", "history", "created_at", "updated_at", "wall_time", "file", "scalars", "texts"}
)
# Of rows that may repeat another one: what workloads below have of the same pod, attempt, iteration and source.
_ROWS = """
select p.id, p.workload_uid, p.pod_uuid, p.serial, p.iteration, p.data_source::text, p.performance, p.created_at,
    case when c.uid is not null then (
        select json_agg(b.performance) from training_performance b
        where b.workload_uid = any(string_to_array(c.below, %(separator)s)) and b.pod_uuid = p.pod_uuid
            and b.serial is not distinct from p.serial and b.iteration = p.iteration
            and b.data_source is not distinct from p.data_source) end
from training_performance p
left join unnest(%(uids)s::text[], %(pods)s::text[], %(below)s::text[]) c (uid, pod, below)
    on c.uid = p.workload_uid and c.pod = p.pod_uuid
order by p.id"""
_SEPARATOR = "\n"
_SPECIAL = frozenset({"nan", "inf", "infinity"})
_AT_ONCE = 5_000


def read_primus_lens(dsn: str) -> Iterator[Record]:
    """Pods with their workloads, then rows. Raises LensError."""
    try:
        with psycopg.connect(dsn) as connection:
            connection.read_only = True
            parents = _workloads(connection)
            below, pods = _hierarchy(connection, parents)
            yield from pods
            with connection.cursor(name="rows") as cursor:
                cursor.itersize = _AT_ONCE
                parameters = {
                    "uids": [uid for uid, _ in below],
                    "pods": [pod for _, pod in below],
                    "below": [_SEPARATOR.join(sorted(uids)) for uids in below.values()],
                    "separator": _SEPARATOR,
                }
                cursor.execute(_ROWS.encode(), parameters)
                for *row, others in cursor:
                    if not _is_repeated(row[6], others or []):
                        yield from _versions(tuple(row))
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
) -> tuple[dict[tuple[str, str], set[str]], list[Pod]]:
    """Workloads below one that has rows of the same pod, by (workload, pod), and what the pods belong to."""
    by_pod: dict[str, set[str]] = {}
    for uid, pod in connection.execute(
        "select distinct workload_uid, pod_uuid from training_performance where coalesce(pod_uuid, '') <> ''"
    ):
        by_pod.setdefault(pod, set()).add(uid)
    below: dict[tuple[str, str], set[str]] = {}
    pods = []
    for pod, uids in sorted(by_pod.items()):
        known = {uid for uid in uids if uid in workloads}
        above = {uid: _ancestors(uid, workloads) for uid in known}
        for uid in uids:
            if under := {other for other in known if uid in above[other]}:
                below[uid, pod] = under
        references = [workloads[uid] for uid in sorted(known | (set().union(*above.values()) & workloads.keys()))]
        if references:
            pods.append(Pod(uid=pod, name="", namespace=references[0].namespace, workloads=references))
    return below, pods


def _is_repeated(performance: Any, others: list[Any]) -> bool:
    """Whether another row has all values that this one has, those included that were overwritten."""
    own = _values_of(performance)
    return any(all(values in _values_of(other) for values in own) for other in others)


def _values_of(performance: Any) -> list[dict[str, str]]:
    if not isinstance(performance, dict):
        return []
    # As texts, because NaN is not equal to itself.
    versions = [*(performance.get("history") or []), performance]
    found = [metrics_of(version) for version in versions if isinstance(version, dict)]
    return [{name: repr(value) for name, value in values.items()} for values in found]


def _ancestors(uid: str, workloads: Mapping[str, WorkloadReference]) -> set[str]:
    found: set[str] = set()
    parent = workloads[uid].parent_uid
    while parent and parent not in found and parent != uid:
        found.add(parent)
        parent = workloads[parent].parent_uid if parent in workloads else ""
    return found


def _versions(row: tuple[Any, ...]) -> Iterator[StepMetrics]:
    """Return the overwritten versions first, then the one that holds."""
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
        moment = _parse_time(version.get("wall_time")) or _parse_time(version.get("updated_at")) or written
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


def _parse_time(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
        except ValueError:
            return None
    return None
