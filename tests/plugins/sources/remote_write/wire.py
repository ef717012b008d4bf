"""Both versions of remote write by the real protobuf library: what the hand-written reader is compared with.

Field numbers: prometheus/docs, the remote write specifications 1.0 and 2.0.
"""

from __future__ import annotations

from typing import Any

import cramjam
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

V2_TYPE = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
_DOUBLE, _INT64, _UINT64, _STRING, _MESSAGE, _UINT32, _SINT32, _SINT64 = 1, 3, 4, 9, 11, 13, 17, 18

_HISTOGRAM = {
    "count_int": (1, _UINT64, "count"),
    "count_float": (2, _DOUBLE, "count"),
    "sum": (3, _DOUBLE),
    "schema": (4, _SINT32),
    "zero_threshold": (5, _DOUBLE),
    "zero_count_int": (6, _UINT64, "zero"),
    "zero_count_float": (7, _DOUBLE, "zero"),
    "negative_spans": (8, "[Span"),
    "negative_deltas": (9, [_SINT64]),
    "negative_counts": (10, [_DOUBLE]),
    "positive_spans": (11, "[Span"),
    "positive_deltas": (12, [_SINT64]),
    "positive_counts": (13, [_DOUBLE]),
    "reset_hint": (14, _UINT64),
    "timestamp": (15, _INT64),
    "custom_values": (16, [_DOUBLE]),
    "start_timestamp": (17, _INT64),
}
_MESSAGES: dict[str, dict[str, Any]] = {
    "Label": {"name": (1, _STRING), "value": (2, _STRING)},
    "Span": {"offset": (1, _SINT32), "length": (2, _UINT32)},
    "Sample": {"value": (1, _DOUBLE), "timestamp": (2, _INT64), "start_timestamp": (3, _INT64)},
    "Exemplar": {"labels": (1, "[Label"), "value": (2, _DOUBLE), "timestamp": (3, _INT64)},
    "Histogram": _HISTOGRAM,
    "Metadata": {"type": (1, _UINT32), "metric_family_name": (2, _STRING), "help": (4, _STRING), "unit": (5, _STRING)},
    "TimeSeries": {
        "labels": (1, "[Label"),
        "samples": (2, "[Sample"),
        "exemplars": (3, "[Exemplar"),
        "histograms": (4, "[Histogram"),
    },
    "WriteRequest": {"timeseries": (1, "[TimeSeries"), "metadata": (3, "[Metadata")},
    "Exemplar2": {"labels_refs": (1, [_UINT32]), "value": (2, _DOUBLE), "timestamp": (3, _INT64)},
    "Metadata2": {"type": (1, _UINT32), "help_ref": (3, _UINT32), "unit_ref": (4, _UINT32)},
    "TimeSeries2": {
        "labels_refs": (1, [_UINT32]),
        "samples": (2, "[Sample"),
        "histograms": (3, "[Histogram"),
        "exemplars": (4, "[Exemplar2"),
        "metadata": (5, "Metadata2"),
        "created_timestamp": (6, _INT64),
    },
    "Request": {"symbols": (4, [_STRING]), "timeseries": (5, "[TimeSeries2")},
}


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="oracle.proto", package="oracle", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, *oneof) in fields.items():
            _add_field(message, field, number, kind, oneof)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"oracle.{name}")) for name in _MESSAGES}


def _add_field(message: Any, name: str, number: int, kind: Any, oneof: list[str]) -> None:
    repeated = isinstance(kind, list) or (isinstance(kind, str) and kind.startswith("["))
    field = message.field.add(name=name, number=number, label=3 if repeated else 1)
    if isinstance(kind, str):
        field.type, field.type_name = _MESSAGE, f".oracle.{kind.removeprefix('[')}"
    else:
        field.type = kind[0] if isinstance(kind, list) else kind
    for group in oneof:
        names = [declared.name for declared in message.oneof_decl]
        if group not in names:
            message.oneof_decl.add(name=group)
            names.append(group)
        field.oneof_index = names.index(group)


TYPES = _build()
WriteRequest, Request, TimeSeries, Histogram = (
    TYPES[name] for name in ("WriteRequest", "Request", "TimeSeries", "Histogram")
)


def series(labels: dict[str, str], *samples: tuple[float, int], **more: Any) -> Any:
    """A TimeSeries of 1.0; samples are (value, milliseconds)."""
    return TimeSeries(
        labels=[{"name": name, "value": value} for name, value in labels.items()],
        samples=[{"value": value, "timestamp": stamp} for value, stamp in samples],
        **more,
    )


def request(*all_series: Any, **more: Any) -> bytes:
    """The bytes of a WriteRequest."""
    return bytes(WriteRequest(timeseries=list(all_series), **more).SerializeToString())


def packed(body: bytes) -> bytes:
    """A snappy block."""
    return bytes(cramjam.snappy.compress_raw(body))


def labels_of(one: Any) -> dict[str, str]:
    """The labels of a decoded series."""
    return {label.name: label.value for label in one.labels}


class Request2:
    """Builds a request of 2.0 with its table of symbols."""

    def __init__(self) -> None:
        self.message = Request(symbols=[""])

    def symbol(self, text: str) -> int:
        """The reference of a text."""
        symbols = list(self.message.symbols)
        if text not in symbols:
            self.message.symbols.append(text)
            symbols.append(text)
        return symbols.index(text)

    def refs(self, labels: list[tuple[str, str]]) -> list[int]:
        """References of labels, name and value by turns."""
        return [self.symbol(text) for label in labels for text in label]

    def add(self, labels: dict[str, str] | list[tuple[str, str]], *samples: tuple[float, int], **more: Any) -> Any:
        """Add a series and give it back."""
        pairs = list(labels.items()) if isinstance(labels, dict) else labels
        return self.message.timeseries.add(
            labels_refs=self.refs(pairs),
            samples=[{"value": value, "timestamp": stamp} for value, stamp in samples],
            **more,
        )

    def body(self) -> bytes:
        """The snappy block."""
        return packed(self.message.SerializeToString())
