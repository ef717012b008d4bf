"""The messages of OTLP as this source decodes them: those of opentelemetry-proto, looser in two ways.

Texts are bytes, because one text that is not UTF-8 would cost the whole request. Attributes, resources, scopes, bodies
and exemplars stay the bytes that they were: a label set is looked up by them, and only a new one is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from lens_core import BadRequest

_PACKAGE = "opentelemetry.proto"
_OPAQUE = tuple(
    f".{_PACKAGE}.{name}"
    for name in (
        "common.v1.KeyValue",
        "common.v1.AnyValue",
        "common.v1.InstrumentationScope",
        "resource.v1.Resource",
        "metrics.v1.Exemplar",
    )
)
# The messages that a request of each signal has the shape of.
_REQUESTS = {"metrics": "MetricsData", "logs": "LogsData", "traces": "TracesData"}


def decode_request(signal: str, body: bytes) -> Any:
    """The message of a request for metrics, logs or traces. Raises BadRequest."""
    try:
        return request_class(signal).FromString(body)
    except DecodeError as error:
        raise BadRequest(f"the body is not an OTLP request for {signal}: {error}") from None


def request_class(signal: str) -> Any:
    """The class of a signal's request: `resource_metrics`, `resource_logs` or `resource_spans`."""
    folder = "trace" if signal == "traces" else signal
    return _message_class(f"{folder}.v1.{_REQUESTS[signal]}")


def common_class(name: str) -> Any:
    """The class of a message that is decoded by itself: KeyValue, AnyValue, Resource or InstrumentationScope."""
    return _message_class(f"common.v1.{name}")


def metrics_class(name: str) -> Any:
    """The class of a message of metrics that is decoded by itself: Exemplar."""
    return _message_class(f"metrics.v1.{name}")


@lru_cache(maxsize=64)
def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def generated_class(signal: str) -> Any:
    """The generated class of a signal's request, with texts that are texts and nothing opaque."""
    from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    classes: dict[str, Any] = {"metrics": MetricsData, "logs": LogsData, "traces": TracesData}
    return classes[signal]


@lru_cache(maxsize=1)
def _pool() -> descriptor_pool.DescriptorPool:
    """A pool of its own: the generated classes of the same names may be loaded beside it."""
    from opentelemetry.proto.common.v1 import common_pb2
    from opentelemetry.proto.resource.v1 import resource_pb2

    pool = descriptor_pool.DescriptorPool()
    common = _copy_of(common_pb2.DESCRIPTOR)
    # It wraps a list of attributes, which stay bytes in both.
    common.message_type.add().CopyFrom(_copy_of(resource_pb2.DESCRIPTOR).message_type[0])
    pool.AddSerializedFile(_loosened(common, keep_values=True).SerializeToString())
    for signal in _REQUESTS:
        file = _copy_of(generated_class(signal).DESCRIPTOR.file)
        pool.AddSerializedFile(_loosened(file, keep_values=False).SerializeToString())
    return pool


def _copy_of(descriptor: Any) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(file)
    return file


def _loosened(file: descriptor_pb2.FileDescriptorProto, *, keep_values: bool) -> descriptor_pb2.FileDescriptorProto:
    """The file with its texts, and with messages that are opaque here, as bytes; the same on the wire."""
    for field in _fields_of(file.message_type):
        is_part_of_value = keep_values and field.type_name in (_OPAQUE[0], _OPAQUE[1]) and field.name != "attributes"
        is_opaque = field.type_name in _OPAQUE and not is_part_of_value
        if is_opaque or field.type == descriptor_pb2.FieldDescriptorProto.TYPE_STRING:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
    del file.dependency[:]
    file.ClearField("options")
    return file


def _fields_of(messages: Any) -> Iterator[descriptor_pb2.FieldDescriptorProto]:
    for message in messages:
        yield from message.field
        yield from _fields_of(message.nested_type)
