"""One log entry as shippers post it, and the record that it becomes.

Fluent Bit (http output, json), rsyslog (omhttp, omprog), syslog-ng (http): `date` or `timestamp`, `message` or `log`,
`stream`, `logtag` (CRI: P for a part of a line), `kubernetes`. Seed 003 has the fields. What carries no kubernetes
metadata names itself by `workload_uid`, `pod_uid`, `pod_name`, or by the host. Of entries that name
their host alone, the kernel's lines about errors of devices become events of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Annotated

import msgspec

from lens_core import Event, LogLine, Origin
from lens_core.logs import PARTIAL, split_container_prefix
from lens_core.plugin_api.encoding import Rank, epoch_seconds

from ..device_errors import event_of, parse_kernel_line

MAX_LABELS = 32
MAX_LABEL_BYTES = 512
NO_IDENTITY = "no_identity"
NO_MESSAGE = "no_message"
KERNEL_SOURCE = "kernel"
_MILLISECONDS = 1e11


class Kubernetes(msgspec.Struct, frozen=True, gc=False):
    """Fields that the shipper's kubernetes filter adds."""

    pod_name: str = ""
    namespace_name: str = ""
    pod_id: str = ""
    host: str = ""
    container_name: str = ""
    labels: dict[str, object] | None = None


_FILTERED = msgspec.Meta(
    description="what the shipper's filter adds: pod_name, namespace_name, pod_id, host, container_name, labels",
    extra_json_schema={"type": "object"},
)


# gc=False: an entry holds no cycles, and there are thousands in a body.
class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry, its text in `message`, `log` or `msg`; unknown fields are passed over."""

    # `kubernetes` stays raw, because most entries of a body share it; its default is made anew, because a Raw that
    # stands in the class has no JSON schema.
    message: str | None = None
    log: str | None = None
    msg: str | None = None
    date: float | str | None = None
    timestamp: float | str | None = None
    time: float | str | None = None
    at_timestamp: float | str | None = msgspec.field(name="@timestamp", default=None)
    stream: str | None = None
    logtag: str | None = None
    kubernetes: Annotated[msgspec.Raw, _FILTERED] = msgspec.field(default_factory=msgspec.Raw)
    workload_uid: str | None = None
    pod_uid: str | None = None
    pod_name: str | None = None
    namespace: str | None = None
    container: str | None = None
    node: str | None = None
    host: str | None = None
    hostname: str | None = None
    rank: Rank | None = None


_kubernetes = msgspec.json.Decoder(Kubernetes, strict=False)


class EntryConverter:
    """Makes records of the entries of one body; `base` says what the request knows of all of them.

    `complete` fills in what is known of an origin: here once for each, so that the gate need not for every line.
    """

    def __init__(self, base: Origin, max_line_bytes: int, complete: Callable[[Origin], Origin]) -> None:
        self._base = base
        self._max_line_bytes = max_line_bytes
        self._complete = complete
        self._origins: dict[tuple[object, ...], Origin] = {}
        self._pods: dict[bytes, Origin] = {}
        self._last_raw = b""
        self._last: Origin | None = None
        self.cut = 0

    def convert(self, entry: Entry) -> LogLine | Event | str:
        """The record, or why there is none."""
        text = entry.message or entry.log or entry.msg
        if text is None:
            return NO_MESSAGE if entry.message is None and entry.log is None and entry.msg is None else ""
        raw = bytes(entry.kubernetes)
        origin = self._last if raw == self._last_raw else self._pods.get(raw)
        if origin is None or entry.workload_uid is not None or entry.rank is not None:
            origin = self._origin_of_entry(entry, raw)
            if not origin.is_known:
                return _device_error(entry, text, origin.node) or NO_IDENTITY
        if text[-1:] == "\n":
            text = text.rstrip("\r\n")
        moment = entry.date
        if type(moment) is not float or not 0.0 < moment < _MILLISECONDS:
            moment = _entry_time(entry)
        tag = entry.logtag
        partial = tag == "P"
        if tag is None and text.startswith("20"):
            text, printed, partial = split_container_prefix(text)
            moment = printed if printed is not None else moment
        if len(text) * 4 > self._max_line_bytes:
            text = self._within_limit(text)
        if partial:
            return LogLine(origin=origin, text=text, event_time=moment, stream=entry.stream or "", source=PARTIAL)
        return LogLine(origin=origin, text=text, event_time=moment, stream=entry.stream or "")

    def _within_limit(self, text: str) -> str:
        encoded = text.encode()
        if len(encoded) <= self._max_line_bytes:
            return text
        self.cut += 1
        return encoded[: self._max_line_bytes].decode("utf-8", "ignore")

    def _origin_of_entry(self, entry: Entry, raw: bytes) -> Origin:
        key = (
            raw,
            entry.workload_uid,
            entry.pod_uid,
            entry.pod_name,
            entry.namespace,
            entry.container,
            entry.node or entry.host or entry.hostname,
            entry.rank,
        )
        origin = self._origins.get(key)
        if origin is None:
            origin = self._origins[key] = self._complete(_make_origin(entry, self._base))
        # Beside kubernetes metadata an entry's own fields say what is missing there, the workload and the rank.
        if raw and origin.pod_name and not any(key[1:]):
            self._pods[raw] = self._last = origin
            self._last_raw = raw
        return origin


def _device_error(entry: Entry, text: str, node: str) -> Event | None:
    """The event of a kernel's line about a device; None for other lines, and where no node is named."""
    error = parse_kernel_line(text)
    if error is None or not (node or error.node):
        return None
    return event_of(error, node or error.node, _entry_time(entry), KERNEL_SOURCE)


def _make_origin(entry: Entry, base: Origin) -> Origin:
    try:
        pod = _kubernetes.decode(entry.kubernetes) if bytes(entry.kubernetes) not in (b"", b"null") else Kubernetes()
    except (msgspec.DecodeError, UnicodeDecodeError):
        pod = Kubernetes()  # the entry may name itself in another way; if not, it is rejected
    return Origin(
        cluster=base.cluster,
        workload_uid=entry.workload_uid or base.workload_uid,
        pod_name=pod.pod_name or entry.pod_name or base.pod_name,
        pod_uid=pod.pod_id or entry.pod_uid or base.pod_uid,
        namespace=pod.namespace_name or entry.namespace or base.namespace,
        node=pod.host or entry.node or entry.host or entry.hostname or base.node,
        container=pod.container_name or entry.container or base.container,
        labels=_labels(pod.labels or {}),
        rank=entry.rank if entry.rank is not None else base.rank,
    )


def _labels(labels: Mapping[str, object]) -> dict[str, str]:
    """The labels, as many and as long as a record may carry; those of training operators first."""
    ordered = sorted(labels, key=lambda name: (not name.startswith("training.kubeflow.org/"), name))
    kept = {name: str(labels[name]) for name in ordered if isinstance(labels[name], str | int)}
    short = {name: value for name, value in kept.items() if len(name) + len(value) <= MAX_LABEL_BYTES}
    return dict(list(short.items())[:MAX_LABELS])


def _entry_time(entry: Entry) -> float | None:
    """The time of an entry, in whichever field it stands."""
    candidates = (entry.date, entry.timestamp, entry.time, entry.at_timestamp)
    return seconds_of(next((when for when in candidates if when is not None), None))


def seconds_of(when: float | str | None) -> float | None:
    """Seconds since the epoch, fraction kept, of a number (s, ms, µs or ns by its size) or an ISO 8601 text."""
    if when is None:
        return None
    if isinstance(when, str):
        try:
            return seconds_of(float(when))
        except ValueError:
            return _iso(when)
    try:
        found = epoch_seconds(when)
    except ValueError:
        return None
    return float(found) if found else None


def _iso(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(_microseconds(text.strip().replace("Z", "+00:00")))
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)).timestamp()


def _microseconds(text: str) -> str:
    """Python 3.10 takes three or six decimals only; container runtimes print nine."""
    head, dot, rest = text.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return f"{head}.{rest[:digits][:6]:0<6}{rest[digits:]}" if dot else text
