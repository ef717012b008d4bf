"""Bodies in Kubernetes' protobuf, which kubectl sends for the kinds that it knows: those that pages create with it.

Source of the numbers: k8s.io/apimachinery/pkg/runtime and k8s.io/api/core/v1, generated.proto.
"""

from __future__ import annotations

import base64
from typing import Any

from lens_core.plugin_api.protobuf import fields

MAGIC = b"k8s\x00"


def object_of(body: bytes) -> dict[str, Any]:
    """A namespace or a secret."""
    unknown = _last(body.removeprefix(MAGIC))
    version, kind = (_last(unknown[1])[number].decode() for number in (1, 2))
    found = {"apiVersion": version, "kind": kind, "metadata": {"name": _last(_last(unknown[2])[1])[1].decode()}}
    if kind == "Secret":
        entries = [_last(field.value) for field in fields(unknown[2]) if field.number == 2]
        found["data"] = {entry[1].decode(): base64.b64encode(entry[2]).decode() for entry in entries}
    else:
        assert kind == "Namespace", f"{kind} is not read from protobuf here"
    return found


def _last(message: bytes) -> dict[int, Any]:
    """The fields of a message by number; of a repeated one the last."""
    return {field.number: field.value for field in fields(message)}
