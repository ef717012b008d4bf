"""The shape in which people and files say which pods there are; the YAML file and PUT /api/v1/directory share it.

`{"pods": [{"uid", "name", "namespace", "node", "phase", "labels": {}, "workloads": [{"uid", "name", "kind",
"namespace", "parent_uid"}], "devices": [{"kind": "gpu_id", "id": "0"}]}]}`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..base.errors import BadRequest
from ..base.json_items import DECODE_ERRORS
from . import ranges
from .records import Device, Pod, WorkloadReference
from .refusals import why_no_ancestors

MAX_PODS = 200_000

_Name = Annotated[str, Meta(min_length=1, max_length=253)]


class _Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    uid: _Name
    name: str = ""
    kind: str = ""
    namespace: str = ""
    parent_uid: str = ""


class _Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: _Name
    id: str | int


class _Pod(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: _Name
    uid: str = ""
    namespace: str = ""
    node: str = ""
    phase: str = ""
    labels: ranges.Labels = {}
    workloads: Annotated[list[_Workload], Meta(max_length=ranges.MAX_WORKLOADS)] = []
    devices: Annotated[list[_Device], Meta(max_length=ranges.MAX_DEVICES)] = []


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pods: Annotated[list[_Pod], Meta(max_length=MAX_PODS)]


def pods_of_json(body: bytes) -> list[Pod]:
    """The pods of a JSON document. Raises BadRequest that names the place."""
    try:
        return _pods(msgspec.json.decode(body, type=_Document))
    except DECODE_ERRORS as error:
        raise BadRequest(f"the directory could not be read: {error}") from None


def pods_of_object(document: Any) -> list[Pod]:
    """The pods of what a YAML parser gave. Raises BadRequest."""
    try:
        return _pods(msgspec.convert(document, _Document))
    except msgspec.ValidationError as error:
        raise BadRequest(f"the directory could not be read: {error}") from None


def json_of_pods(pods: Iterable[Pod]) -> bytes:
    """The document of these pods."""
    return msgspec.json.encode({"pods": [_written(pod) for pod in pods]})


def _pods(document: _Document) -> list[Pod]:
    for place, pod in enumerate(document.pods):
        if reason := why_no_ancestors({work.uid: work.parent_uid for work in pod.workloads}):
            raise BadRequest(f"the directory could not be read: {reason} - at `$.pods[{place}]`")
    return [
        Pod(
            uid=pod.uid,
            name=pod.name,
            namespace=pod.namespace,
            node=pod.node,
            phase=pod.phase,
            labels=pod.labels,
            workloads=[WorkloadReference(**msgspec.structs.asdict(workload)) for workload in pod.workloads],
            devices=[Device(kind=device.kind, id=str(device.id)) for device in pod.devices],
        )
        for pod in document.pods
    ]


def _written(pod: Pod) -> _Pod:
    return _Pod(
        name=pod.name,
        uid=pod.uid,
        namespace=pod.namespace,
        node=pod.node,
        phase=pod.phase,
        labels=pod.labels,
        workloads=[_Workload(**msgspec.structs.asdict(workload)) for workload in pod.workloads],
        devices=[_Device(device.kind, device.id) for device in pod.devices],
    )
