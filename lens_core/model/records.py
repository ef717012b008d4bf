"""The records that flow through Lens, and the envelope in which they travel. Read this file first.

Everything that Lens sees becomes a record; every record takes the same path (source, identity, detectors,
route, spool, sink). Times are seconds since the epoch, UTC, with their fraction. A name that is not known is the
empty string, a number that is not known is None. Fields are only ever added, never renamed or removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr, replace

from ..base.deprecation import deprecated_names
from ..base.json_items import DECODE_ERRORS, decode_json
from . import ranges

ENVELOPE_VERSION = 1
PRODUCER = "lens-agent/0.1.0"
# The label of an origin that holds the name under which its workload is shown until better is known.
SHOWN_NAME_LABEL = "training.kubeflow.org/job-name"


# gc=False: records hold no cycles, and a garbage collector that visits tens of thousands of them is half the cost of
# delivery.
class Origin(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """The origin of a record; identity fills in what the sender did not know.

    `labels` are bounded by the source that sets them. `rank`, `local_rank`, `node_rank` and `world_size` are those
    of torch.distributed.
    """

    cluster: str = ""
    workload_uid: str = ""
    pod_name: str = ""
    pod_uid: str = ""
    namespace: str = ""
    node: str = ""
    container: str = ""
    labels: ranges.Labels = {}
    rank: ranges.Rank | None = None
    local_rank: ranges.Rank | None = None
    node_rank: ranges.Rank | None = None
    world_size: ranges.WorldSize | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything says which workload or pod this is; rows without it are refused at the ingest gate."""
        return bool(self.workload_uid or self.pod_uid or self.pod_name)


NOWHERE = Origin()


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="record", gc=False):
    """Base of all that flows. On the wire the field `record` holds the kind."""

    origin: Origin = NOWHERE


class StepMetrics(Record, frozen=True, kw_only=True, tag="step_metrics"):
    """One row: all metrics that one producer logged at one step.

    `row_step` is the step of the row's key (wandb's own step, the log line's iteration); `iteration` the training
    step where it differs, else None. `session` is one id per process start or resume; the store numbers sessions
    into attempts, unless `attempt` is set (the log parser knows better). `sequence` orders what one producer says
    about one key: the highest wins, one that was seen before changes nothing. Microseconds since the epoch serve
    where the producer has no counter of its own. `values` may hold NaN and infinities. `tags` are per metric.
    `echo_of` names what the row repeats: the framework in whose logging the tracker was called, or another data source.
    A collector that reads what a tracker was told names the row's own: the job may have sent the same row itself.
    """

    data_source: str
    row_step: ranges.Step
    values: ranges.Values
    run_id: str = ""
    session: str = ""
    attempt: ranges.Attempt | None = None
    iteration: ranges.Step | None = None
    event_time: ranges.EventTime | None = None
    sequence: ranges.SequenceNumber = 0
    tags: ranges.MetricTags = {}
    echo_of: str = ""


class Measurement(Record, frozen=True, kw_only=True, tag="measurement"):
    """One value of one metric that is not a training step: collectors, host metrics.

    `kind` is gauge, count or rate; `value` None means "no data", which is neither zero nor a failure.
    """

    name: str
    value: float | None
    kind: str = "gauge"
    unit: str = ""
    event_time: ranges.EventTime | None = None
    tags: ranges.Labels = {}


class SeriesBatch(Record, frozen=True, kw_only=True, tag="series_batch"):
    """One remote-write request: its already enriched protobuf bytes, and what it holds.

    `body` is a WriteRequest of `protocol`, as a snappy block if `compression` says snappy, as it is if it is empty.
    """

    body: bytes
    protocol: str = "1.0"
    compression: str = ""
    series: ranges.Count = 0
    samples: ranges.Count = 0
    histograms: ranges.Count = 0
    exemplars: ranges.Count = 0


class LogLine(Record, frozen=True, kw_only=True, tag="log_line"):
    """One line of a training log; stored only where a sink asks for it.

    `stream` is stdout, stderr or the name of what is read; `position` is where the line ends in it, for producers
    that may read a line twice: what is not after the last position of its stream was there already.
    """

    text: str
    event_time: ranges.EventTime | None = None
    stream: str = ""
    source: str = "log"
    position: ranges.Count | None = None


class Evidence(Record, frozen=True, kw_only=True, tag="evidence"):
    """Raw facts from which detectors tell the framework; `facts` has the shape of the hook's evidence."""

    source: str
    facts: dict[str, Any]
    run_id: str = ""
    session: str = ""
    event_time: ranges.EventTime | None = None


class Detection(Record, frozen=True, kw_only=True, tag="detection"):
    """One detector's opinion: this framework, in this layer (wrapper or base), so sure (0 to 1), by this method."""

    workload_uid: str = ""
    source: str
    framework: str
    layer: str
    confidence: ranges.Confidence
    method: str
    facts: dict[str, Any] = {}
    event_time: ranges.EventTime | None = None


class Event(Record, frozen=True, kw_only=True, tag="event"):
    """Something that happened once: `type` is one of the event types of the contract, section 13."""

    type: str
    run_id: str = ""
    session: str = ""
    attempt: ranges.Attempt | None = None
    iteration: ranges.Step | None = None
    event_time: ranges.EventTime | None = None
    data_source: str = ""
    details: dict[str, Any] = {}


class WorkloadReference(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A workload that a pod belongs to, or an ancestor of one."""

    uid: str
    name: str = ""
    kind: str = ""
    namespace: str = ""
    parent_uid: str = ""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a pod holds; `kind` is gpu_id, device (InfiniBand and RDMA) or asic."""

    kind: str
    id: str


class Pod(Record, frozen=True, kw_only=True, tag="pod"):
    """A pod, the workloads it belongs to (ancestors included) and the devices it holds."""

    uid: str
    name: str
    namespace: str = ""
    node: str = ""
    phase: str = ""
    labels: ranges.Labels = {}
    workloads: Annotated[list[WorkloadReference], Meta(max_length=ranges.MAX_WORKLOADS)] = []
    devices: Annotated[list[Device], Meta(max_length=ranges.MAX_DEVICES)] = []


# The data_type of the last lines of a log, which are stored when something is wrong with their job.
LOG_TAIL = "LOG_TAIL"


class Diagnosis(Record, frozen=True, kw_only=True, tag="diagnosis"):
    """One report of a diagnosis collector (TRAINING_LOG, XPU_TIMER_METRIC or STACK_TRACE), or a LOG_TAIL."""

    data_type: str
    data_content: str
    node_id: ranges.NodeId = -1
    node_type: str = ""
    node_rank: ranges.NodeId = -1
    timestamp: ranges.EventTime = 0.0


AnyRecord: TypeAlias = (
    StepMetrics | Measurement | SeriesBatch | LogLine | Evidence | Detection | Event | Pod | Diagnosis
)

RECORD_KINDS: Mapping[str, type[Record]] = {
    "step_metrics": StepMetrics,
    "measurement": Measurement,
    "series_batch": SeriesBatch,
    "log_line": LogLine,
    "evidence": Evidence,
    "detection": Detection,
    "event": Event,
    "pod": Pod,
    "diagnosis": Diagnosis,
}
_KIND_OF: Mapping[type[Record], str] = {kind: name for name, kind in RECORD_KINDS.items()}


def kind_of(record: Record) -> str:
    """The kind under which a record is filtered and counted: `step_metrics`, `event` …"""
    return _KIND_OF[type(record)]


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The encoded form on disk and between lenses; `origin` holds for every record that carries none of its own."""

    version: int = ENVELOPE_VERSION
    producer: str = ""
    received_at: float | None = None
    origin: Origin = NOWHERE
    records: list[msgspec.Raw] = []


class RecordsEnvelope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The form sent between lenses: records, and the origin of those that carry none of their own."""

    version: int = ENVELOPE_VERSION
    producer: str = ""
    received_at: float | None = None
    origin: Origin = NOWHERE
    records: Sequence[AnyRecord] = ()


class Decoded(msgspec.Struct, frozen=True):
    """The records of an envelope, and those that could not be read: (index, reason)."""

    records: list[AnyRecord]
    rejected: list[tuple[int, str]]
    producer: str
    origin: Origin
    received_at: float | None
    version: int = ENVELOPE_VERSION


_encoder = msgspec.msgpack.Encoder()
_typed = msgspec.msgpack.Decoder(RecordsEnvelope)
_raw = msgspec.msgpack.Decoder(Envelope)
_one = msgspec.msgpack.Decoder(AnyRecord)
# strict=False: JSON has no NaN, so non-finite values travel as texts.
_typed_json = msgspec.json.Decoder(RecordsEnvelope, strict=False)
_raw_json = msgspec.json.Decoder(Envelope, strict=False)
_one_json = msgspec.json.Decoder(AnyRecord, strict=False)


def encode_envelope(records: Iterable[Record], received_at: float | None = None) -> bytes:
    """Encode records as one MessagePack envelope; an origin that several of them have in common is written once."""
    whole = list(records)
    origin = _common_origin(whole)
    envelope = RecordsEnvelope(
        producer=PRODUCER,
        received_at=time.time() if received_at is None else received_at,
        origin=origin,
        records=whole if origin is NOWHERE else _without_origin(whole),  # type: ignore[arg-type]
    )
    return _encoder.encode(envelope)


def _common_origin(records: Sequence[Record]) -> Origin:
    """The origin of all records; NOWHERE if they differ, and for a single record, which stays whole."""
    origins = [record.origin for record in records]
    if len(origins) < 2 or origins[0] != origins[-1]:
        return NOWHERE
    return origins[0] if origins.count(origins[0]) == len(origins) else NOWHERE


def _without_origin(records: Sequence[Record]) -> list[Record]:
    return [replace(record, origin=NOWHERE) for record in records]


def decode_envelope(body: bytes | memoryview) -> Decoded:
    """Decode a MessagePack envelope; a record that cannot be read is reported and loses no other.

    The whole envelope is decoded at once where that works (the usual case), one by one where it does not, because
    the decoder stops at the first bad item. Raises msgspec.DecodeError when the envelope itself is not readable.
    """
    try:
        return _all(_typed.decode(body))
    except (msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return _decode_singly(_unreadable_is_damage(body), _one)


def _unreadable_is_damage(body: bytes | memoryview) -> Envelope:
    try:
        return _raw.decode(body)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"the envelope is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise msgspec.DecodeError("the envelope is nested too deeply") from None


def decode_json_envelope(body: bytes) -> Decoded:
    """Decode a JSON envelope, bare NaN tokens included; otherwise like `decode_envelope`."""
    try:
        return _all(decode_json(body, _typed_json))
    except msgspec.ValidationError:
        return _decode_singly(decode_json(body, _raw_json), _one_json)


def _all(envelope: RecordsEnvelope) -> Decoded:
    return _decoded(list(envelope.records), [], envelope)


def _decoded(
    records: list[AnyRecord], rejected: list[tuple[int, str]], envelope: Envelope | RecordsEnvelope
) -> Decoded:
    """Give the envelope's origin to the records without one: nobody else has them yet, so they may be changed."""
    origin = envelope.origin
    if origin is not NOWHERE:
        for record in records:
            if record.origin is NOWHERE:
                force_setattr(record, "origin", origin)
    return Decoded(records, rejected, envelope.producer, origin, envelope.received_at, envelope.version)


def _decode_singly(
    envelope: Envelope, decoder: msgspec.msgpack.Decoder[AnyRecord] | msgspec.json.Decoder[AnyRecord]
) -> Decoded:
    records: list[AnyRecord] = []
    rejected: list[tuple[int, str]] = []
    for index, raw in enumerate(envelope.records):
        try:
            records.append(decoder.decode(raw))
        except DECODE_ERRORS as error:
            rejected.append((index, str(error)))
    return _decoded(records, rejected, envelope)


# Hidden from type checkers, which would else believe that every name is here.
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__)
