"""The label sets of series, by the bytes from which they are made: only a new one is decoded."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from google.protobuf.message import DecodeError

from lens_core import Directory
from lens_core.plugin_api.protobuf import read_varint, varint

from ..remote_write import forward
from ..remote_write.enriching import Enricher
from ..remote_write.forward import LabelSet
from ..remote_write.labels import METRIC_NAME, make_label
from ..remote_write.settings import DEVICE_LABELS, RemoteWriteSettings
from .naming import label_pairs, metric_name
from .resources import Resource, read_resource
from .schema import common_class
from .settings import OtlpSettings
from .values import BadValue, text_of

MAX_LABEL_SET_BYTES = 64 * 1024
# A sample: its tag and length, eight bytes of value with their tag, seven of a time between 1971 and 2109 with its own.
SAMPLE_BYTES = 18
_SAMPLE_HEAD = b"\x12\x10\x09"


class Refused(ValueError):
    """A data point, record or span that becomes nothing; `reason` is one of a few words, the text is for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Entry:
    """One label set; `head` are the bytes of its series up to the value of a single sample.

    `received` are its labels before the pod's are put in, `pod` was found by `keys` in this `epoch` of the directory.
    """

    __slots__ = ("epoch", "head", "keys", "pod", "received")

    def __init__(self, label_set: LabelSet, epoch: int) -> None:
        self.received = label_set.received
        self.keys = label_set.keys
        self.place(label_set, epoch)

    def place(self, label_set: LabelSet, epoch: int) -> None:
        """Take the labels that the directory gives in this epoch."""
        self.epoch = epoch
        self.pod = label_set.pod
        labels = label_set.forwarded_labels() or b""
        self.head = b"\x0a" + varint(len(labels) + SAMPLE_BYTES) + labels + _SAMPLE_HEAD

    @property
    def labels(self) -> bytes:
        """The label fields of the series."""
        _, start = read_varint(self.head, 1)
        return self.head[start : -len(_SAMPLE_HEAD)]


class Stream(msgspec.Struct):
    """One metric of a scope of a resource: its name in Prometheus, the labels of all its series, and the known ones."""

    name: str
    labels: Mapping[str, str]
    entries: dict[object, Entry] = {}


class Scope(msgspec.Struct):
    """A resource and an instrumentation scope, with the labels that both give."""

    resource: Resource
    labels: Mapping[str, str]
    streams: dict[tuple[bytes, bytes, str, str], Stream] = {}


class LabelSetTable:
    """Finds or makes label sets, with the pod and the workload that remote write would give them.

    A table that is full is cleared: to make its entries anew takes less than to keep them in the order of their use.
    """

    def __init__(self, settings: OtlpSettings, directory: Directory) -> None:
        joining = RemoteWriteSettings(
            workload=settings.workload, drop_negative=[], device_labels={**DEVICE_LABELS, "hw_id": "gpu_id"}
        )
        self._enricher = Enricher(joining, directory, forward)
        self._settings = settings
        self._scopes: dict[tuple[bytes, bytes], Scope] = {}
        self._resources: dict[bytes, Resource] = {}
        self.size = 0
        self.epoch = 1

    def follow_directory(self) -> None:
        """Take up what the directory knows now, and clear a full table; before every portion of points."""
        self.epoch = self._enricher.refresh()
        if self.size > self._settings.cached_series:
            self._scopes.clear()
            self._resources.clear()
            self.size = 0

    def find_resource(self, raw: bytes) -> Resource:
        """The resource that these bytes hold. Raises BadValue."""
        found = self._resources.get(raw)
        if found is None:
            found = self._resources[raw] = read_resource(raw, self._settings.resource_labels)
            self.size += 1 + len(raw) // 1024
        return found

    def find_scope(self, resource_raw: bytes, scope_raw: bytes) -> Scope:
        """The scope of a resource. Raises BadValue."""
        found = self._scopes.get((resource_raw, scope_raw))
        if found is None:
            resource = self.find_resource(resource_raw)
            found = Scope(resource, {**_scope_labels(scope_raw), **resource.labels})
            self._scopes[resource_raw, scope_raw] = found
            self.size += 1 + (len(resource_raw) + len(scope_raw)) // 1024
        return found

    def find_stream(self, scope: Scope, name: bytes, unit: bytes, kind: str, suffix: str = "") -> Stream:
        """The stream of a metric; `suffix` tells the parts of a histogram. Raises Refused."""
        key = (name, unit, kind, suffix)
        found = scope.streams.get(key)
        if found is None:
            text, unit_text = name.decode("utf-8", "replace"), unit.decode("utf-8", "replace")
            translated = metric_name(text, unit_text, kind, self._settings.suffixes)
            if not translated:
                raise Refused("invalid", f"the metric {text[:100]!r} has no name that Prometheus can hold")
            found = scope.streams[key] = Stream(translated + suffix, scope.labels)
            self.size += 1
        return found

    def find_entry(self, stream: Stream, key: object, attributes: Mapping[str, object], **extra: str) -> Entry:
        """The entry of attributes, by the bytes of which `key` is made. Raises Refused."""
        entry = stream.entries.get(key)
        if entry is None:
            entry = self._make_entry(stream, attributes, extra)
            stream.entries[key] = entry
            # A large one counts as several, so that the table is bounded in bytes, too.
            self.size += 1 + len(entry.head) // 1024
        elif entry.epoch != self.epoch:
            self.renew(entry)
        return entry

    def renew(self, entry: Entry) -> None:
        """Take up what the directory has learned about the pod of an entry since it was made."""
        if entry.keys and self._enricher.pod(entry.keys) is not entry.pod:
            entry.place(self._enricher.label_set(entry.received), self.epoch)
        entry.epoch = self.epoch

    def encode_series(self, name: str, labels: Mapping[str, str]) -> Entry:
        """An entry that is not kept. Raises Refused."""
        made = sorted(make_label(label, text) for label, text in {**labels, METRIC_NAME: name}.items())
        block = b"".join([label[2] for label in made])
        if len(block) > MAX_LABEL_SET_BYTES:
            raise Refused("invalid", f"the attributes of {name[:100]} are larger than {MAX_LABEL_SET_BYTES} bytes")
        return Entry(self._enricher.label_set(block), self.epoch)

    def _make_entry(self, stream: Stream, attributes: Mapping[str, object], extra: Mapping[str, str]) -> Entry:
        texts = label_pairs((key, text_of(value)) for key, value in attributes.items())
        return self.encode_series(stream.name, {**texts, **stream.labels, **extra})


def _scope_labels(raw: bytes) -> dict[str, str]:
    try:
        scope = common_class("InstrumentationScope").FromString(raw)
    except DecodeError:
        raise BadValue("the scope cannot be decoded") from None
    labels = {"otel_scope_name": scope.name, "otel_scope_version": scope.version}
    return {label: text.decode("utf-8", "replace") for label, text in labels.items() if text}
