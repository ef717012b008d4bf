"""A batch by kind: rows by stream, all else beside its subject, what cannot be stored with the reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lens_core import Batch, Detection, Diagnosis, Event, Evidence, Measurement, Origin, Pod, Record, StepMetrics

from .facts import diagnosis_problem
from .grouping import (
    Grouped,
    NameCache,
    StreamKey,
    SubjectKey,
    group,
    is_long,
    origin_problem,
    place_of,
    stream_key,
    subject_of,
)
from .measuring import rows_of_measurements

KNOWN_SOURCES = frozenset({"wandb", "log", "tensorflow"})


@dataclass(slots=True)
class Sorted:
    """A batch by kind; the rest has its subject beside it."""

    rows: Grouped
    events: list[tuple[SubjectKey, StreamKey, Event]] = field(default_factory=list)
    evidence: list[tuple[SubjectKey, Evidence]] = field(default_factory=list)
    detections: list[tuple[SubjectKey, Detection]] = field(default_factory=list)
    diagnoses: list[tuple[SubjectKey, Diagnosis]] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    fact_subjects: set[SubjectKey] = field(default_factory=set)
    filtered: int = 0
    saved: Counter[str] = field(default_factory=Counter)
    wandb_points: int = 0


def source_label(data_source: str) -> str:
    """The source as a label of Lens' own metrics, which are bounded."""
    return data_source if data_source in KNOWN_SOURCES else "other"


def sort_batch(batch: Batch, skip: int, cluster: str, history_limit: int, names: NameCache) -> Sorted:
    """The batch without its first `skip` records; pure but for the cache of names."""
    indexed = list(enumerate(batch.records))[skip:]
    rows = [(index, record) for index, record in indexed if type(record) is StepMetrics]
    others = [] if len(rows) == len(indexed) else [pair for pair in indexed if type(pair[1]) is not StepMetrics]
    measured = rows_of_measurements((index, record) for index, record in others if type(record) is Measurement)
    made = [(place, row) for place, (_, row) in enumerate(measured, len(batch.records))]
    sorted_ = Sorted(group([*rows, *made] if made else rows, cluster, history_limit, names))
    rejected = sorted_.rows.rejected
    for (place, _), (indexes, _) in zip(made, measured, strict=True):
        if (reason := rejected.pop(place, None)) is not None:
            rejected.update(dict.fromkeys(indexes, reason))
    saved = [row for index, row in rows if index not in rejected] if rejected else [row for _, row in rows]
    for source, count in Counter([row.data_source for row in saved]).items():
        sorted_.saved[source_label(source)] += count
    sorted_.wandb_points = sum([len(row.values) for row in saved if row.data_source == "wandb"])
    for index, record in others:
        if type(record) is Measurement:
            sorted_.filtered += record.value is None
        else:
            _sort_fact(index, record, sorted_, cluster)
    return sorted_


def _sort_fact(index: int, record: Record, sorted_: Sorted, cluster: str) -> None:
    if isinstance(record, Pod):
        sorted_.pods.append(record)
        return
    if not isinstance(record, Event | Evidence | Detection | Diagnosis):
        sorted_.filtered += 1
        return
    origin = record.origin
    if isinstance(record, Detection) and record.workload_uid:
        origin = Origin(workload_uid=record.workload_uid, cluster=origin.cluster)
    problem = origin_problem(origin) or _fact_problem(record)
    if problem is not None:
        sorted_.rows.rejected[index] = problem
        return
    subject = subject_of(origin, cluster)
    key = SubjectKey(subject.cluster, subject.key)
    sorted_.rows.subjects.setdefault(key, subject)
    sorted_.fact_subjects.add(key)
    if isinstance(record, Event):
        stream = _event_stream(record, key)
        sorted_.rows.places.setdefault(stream, place_of(origin))
        sorted_.events.append((key, stream, record))
    elif isinstance(record, Evidence):
        sorted_.evidence.append((key, record))
    elif isinstance(record, Diagnosis):
        sorted_.diagnoses.append((key, record))
    else:
        sorted_.detections.append((key, record))


def _event_stream(event: Event, subject: SubjectKey) -> StreamKey:
    """The stream whose attempt an event belongs to."""
    row = StepMetrics(
        origin=event.origin,
        data_source=event.data_source,
        row_step=0,
        values={},
        run_id=event.run_id,
        session=event.session,
        attempt=event.attempt,
    )
    return stream_key(row, subject_of(event.origin, subject.cluster))


def _fact_problem(record: Event | Evidence | Detection | Diagnosis) -> str | None:
    if isinstance(record, Diagnosis):
        texts = (record.node_type, record.data_type, "", "")
        if (problem := diagnosis_problem(record)) is not None:
            return problem
    elif isinstance(record, Event):
        texts = (record.type, record.data_source, record.run_id, record.session)
        if not -(2**63) <= (record.iteration or 0) < 2**63:
            return "iteration does not fit in 64 bits"
        if abs(record.attempt or 0) >= 2**31 or abs(record.origin.rank or 0) >= 2**31:
            return "attempt or rank does not fit in 32 bits"
    elif isinstance(record, Evidence):
        texts = (record.source, record.run_id, record.session, "")
    else:
        texts = (record.source, record.layer, record.framework, record.method)
    return "a text that identifies the record is longer than 512 bytes" if any(map(is_long, texts)) else None
