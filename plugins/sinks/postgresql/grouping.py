"""From a batch's rows to streams: whose they are, and which of them have the same key. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from lens_core import SHOWN_NAME_LABEL, Origin, StepMetrics

from .rows import RowState, merge, order_of, written
from .text import MAX_KEY_BYTES, clean, metric_key, microseconds

LOG_SOURCE = "log"
UNKNOWN_RANK = -1
_WORKLOAD = "workload:"
_MAX_BIGINT = 2**63 - 1
_MIN_BIGINT = -(2**63)
_MAX_INTEGER = 2**31 - 1
_REMEMBERED_NAMES = 200_000


class SubjectKey(NamedTuple):
    """The subject of a record: `key` is unique within the cluster."""

    cluster: str
    key: str

    @property
    def workload_uid(self) -> str:
        """The workload's uid; empty where the subject is a pod."""
        return self.key.removeprefix(_WORKLOAD) if self.key.startswith(_WORKLOAD) else ""


class StreamPlace(NamedTuple):
    """The pod and node in which a stream began, as far as they are known, and how many ranks trained together."""

    pod_uid: str
    pod_name: str
    node: str
    world_size: int | None


class Subject(NamedTuple):
    """A subject as its table holds it."""

    cluster: str
    key: str
    workload_uid: str
    pod_uid: str
    namespace: str
    pod_name: str
    name: str

    @property
    def is_named(self) -> bool:
        """Whether it has a name of its own; its pod's serves until one comes."""
        return self.name not in ("", self.pod_name)


class StreamKey(NamedTuple):
    """The stream of a row, before ids are known: `attempt` None means that `session` decides it."""

    subject: SubjectKey
    data_source: str
    run_id: str
    rank: int
    attempt: int | None
    session: str

    @property
    def shared_by_ranks(self) -> bool:
        """Whether all ranks write into one row."""
        return self.data_source == LOG_SOURCE


Pending: TypeAlias = StepMetrics | RowState
"""A row to write: one write as it came, or several merged."""


@dataclass(slots=True)
class Grouped:
    """A batch's rows by stream and row_step, the subjects and places behind them, what cannot be stored."""

    subjects: dict[SubjectKey, Subject] = field(default_factory=dict)
    streams: dict[StreamKey, dict[int, Pending]] = field(default_factory=dict)
    places: dict[StreamKey, StreamPlace] = field(default_factory=dict)
    echoes: dict[StreamKey, dict[str, str]] = field(default_factory=dict)  # what each metric repeats
    rejected: dict[int, str] = field(default_factory=dict)


def place_of(origin: Origin) -> StreamPlace:
    """The place of an origin."""
    return StreamPlace(clean(origin.pod_uid), clean(origin.pod_name), clean(origin.node), origin.world_size)


def subject_of(origin: Origin, cluster: str) -> Subject:
    """The subject of an origin: its workload, else its pod's uid, else namespace and name, else the name."""
    workload_uid, pod_uid = clean(origin.workload_uid), clean(origin.pod_uid)
    namespace, pod_name = clean(origin.namespace), clean(origin.pod_name)
    if workload_uid:
        key = _WORKLOAD + workload_uid
    elif pod_uid:
        key = f"pod:{pod_uid}"
    else:
        key = f"name:{namespace}/{pod_name}"
    name = clean(origin.labels.get(SHOWN_NAME_LABEL, "")) or pod_name
    return Subject(clean(origin.cluster) or cluster, key, workload_uid, pod_uid, namespace, pod_name, name)


def origin_problem(origin: Origin) -> str | None:
    """Why nothing can be stored under this origin; None when it can."""
    if not origin.is_known:
        return "neither workload_uid nor pod_uid nor pod_name"
    texts = (origin.cluster, origin.workload_uid, origin.pod_uid, origin.namespace, origin.pod_name)
    return "an identifier of the origin is longer than 512 bytes" if any(map(is_long, texts)) else None


def is_long(text: str) -> bool:
    """Whether a text is too long for a key."""
    return len(text) * 4 > MAX_KEY_BYTES and len(text.encode("utf-8", "replace")) > MAX_KEY_BYTES


def row_problem(row: StepMetrics) -> str | None:
    """Why the numbers of a row cannot be stored; None when they can."""
    iteration = row.iteration
    if not (
        _MIN_BIGINT <= row.row_step <= _MAX_BIGINT
        and _MIN_BIGINT <= row.sequence <= _MAX_BIGINT
        and (iteration is None or _MIN_BIGINT <= iteration <= _MAX_BIGINT)
    ):
        return "row_step, iteration or sequence does not fit in 64 bits"
    return None


def stream_problem(row: StepMetrics) -> str | None:
    """Why no row of this row's stream can be stored; None when they can."""
    if any(map(is_long, (row.data_source, row.run_id, row.session, row.echo_of))):
        return "data_source, run_id, session or echo_of is longer than 512 bytes"
    if any(abs(number) > _MAX_INTEGER for number in (row.attempt or 0, row.origin.rank or 0)):
        return "attempt or rank does not fit in 32 bits"
    return origin_problem(row.origin)


def stream_key(row: StepMetrics, subject: Subject) -> StreamKey:
    """The stream of a row."""
    rank = row.origin.rank
    shared = row.data_source == LOG_SOURCE or rank is None or rank < 0
    return StreamKey(
        SubjectKey(subject.cluster, subject.key),
        clean(row.data_source),
        clean(row.run_id),
        UNKNOWN_RANK if shared or rank is None else rank,
        row.attempt,
        "" if row.attempt is not None else clean(row.session),
    )


def state_of(row: Pending, key: StreamKey) -> RowState:
    """A pending row as a state that can be merged."""
    if isinstance(row, RowState):
        return row
    return written(
        row.values,
        order_of(row.sequence, row.origin.rank, shared_by_ranks=key.shared_by_ranks),
        tags=row.tags,
        # An iteration that is the row's step says no more than none: the column holds the step for both.
        iteration=None if row.iteration == row.row_step else row.iteration,
        time_us=microseconds(row.event_time),
    )


def group(rows: Iterable[tuple[int, StepMetrics]], cluster: str, history_limit: int, names: NameCache) -> Grouped:
    """Sort rows (with their indexes in the batch) into streams and merge those of one key."""
    grouped = Grouped()
    buffers = StreamBuffers(grouped, cluster)
    for index, row in rows:
        problem = row_problem(row)
        if problem is not None:
            grouped.rejected[index] = problem
            continue
        buffer = buffers.find_buffer(row)
        if buffer.problem is not None:
            grouped.rejected[index] = buffer.problem
            continue
        row = names.with_stored_names(row)
        if row.echo_of:
            grouped.echoes.setdefault(buffer.key, {}).update(dict.fromkeys(row.values, clean(row.echo_of)))
        present = buffer.steps.setdefault(row.row_step, row)
        if present is not row:
            key = buffer.key
            buffer.steps[row.row_step] = merge(state_of(present, key), state_of(row, key), history_limit)
    return grouped


@dataclass(slots=True)
class StreamBuffer:
    """The rows of one stream by row_step, or the problem that keeps them out."""

    key: StreamKey
    problem: str | None
    steps: dict[int, Pending]


class StreamBuffers:
    """Finds the buffer of a row, mostly that of the previous row."""

    def __init__(self, grouped: Grouped, cluster: str) -> None:
        self._grouped = grouped
        self._cluster = cluster
        self._buffers: dict[tuple[object, ...], StreamBuffer] = {}
        self._row: StepMetrics | None = None
        self._last: StreamBuffer | None = None

    def find_buffer(self, row: StepMetrics) -> StreamBuffer:
        """Return the buffer of the row's stream."""
        last, origin = self._row, row.origin
        # Rows of one run mostly share their origin, and follow each other.
        if (
            self._last is not None
            and last is not None
            and origin is last.origin
            and row.session == last.session
            and row.run_id == last.run_id
            and row.data_source == last.data_source
            and row.attempt == last.attempt
        ):
            return self._last
        self._row = row
        identity = (
            *(origin.cluster, origin.workload_uid, origin.pod_uid, origin.namespace, origin.pod_name, origin.rank),
            *(row.data_source, row.run_id, row.attempt, row.session),
        )
        self._last = self._buffers.get(identity) or self._open_buffer(identity, row)
        return self._last

    def _open_buffer(self, identity: tuple[object, ...], row: StepMetrics) -> StreamBuffer:
        subject = subject_of(row.origin, self._cluster)
        key = stream_key(row, subject)
        problem = stream_problem(row)
        steps: dict[int, Pending] = {}
        if problem is None:
            self._grouped.subjects.setdefault(key.subject, subject)
            self._grouped.places.setdefault(key, place_of(row.origin))
            steps = self._grouped.streams.setdefault(key, {})
        buffer = self._buffers[identity] = StreamBuffer(key, problem, steps)
        return buffer


class NameCache:
    """A cache of metric names that may be stored as they are; nearly all rows have names that were seen before."""

    def __init__(self) -> None:
        self._as_they_are: set[str] = set()

    def with_stored_names(self, row: StepMetrics) -> StepMetrics:
        """The row with its metrics (and their tags) under the names by which they are stored."""
        if self._as_they_are.issuperset(row.values) and not row.tags:
            return row
        stored = {name: metric_key(name) for name in row.values}
        if len(self._as_they_are) + len(stored) > _REMEMBERED_NAMES:
            self._as_they_are.clear()
        self._as_they_are.update(name for name, key in stored.items() if name == key)
        return StepMetrics(
            origin=row.origin,
            data_source=row.data_source,
            row_step=row.row_step,
            values={stored[name]: value for name, value in row.values.items()},
            run_id=row.run_id,
            session=row.session,
            attempt=row.attempt,
            iteration=row.iteration,
            event_time=row.event_time,
            sequence=row.sequence,
            tags={stored[name]: tags for name, tags in row.tags.items() if name in stored and tags},
            echo_of=row.echo_of,
        )
