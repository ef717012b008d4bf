"""The event of a device's error: made of an error, and read again by analyzers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lens_core import Event, Origin
from lens_core.plugin_api.store import measured_uid

from .xids import can_stop, is_of_hardware, name_of_xid

DEVICE_ERROR = "device_error"
_MOST_CHARACTERS = 200
_FIGURES = ("before", "now", "seconds", "count", "block", "reason")


class DeviceError(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a device: `error` in words, `device` as its reporter names it, `rule` by which it counts as one.

    `can_stop` says that it can end a job; of several that can, those `of_hardware` are the likelier cause. `pid` is
    the process that the driver names, `node` the host that the line itself names. `figures` go into the event as they
    are.
    """

    error: str
    kind: str
    rule: str
    device: str = ""
    xid: int | None = None
    pid: int | None = None
    node: str = ""
    can_stop: bool = True
    of_hardware: bool = True
    figures: Mapping[str, float | str] = {}


def node_uid(node: str) -> str:
    """The uid under which the errors of a node's devices are stored."""
    return measured_uid(Origin(node=node))


def event_of(
    error: DeviceError, node: str, time: float | None, data_source: str, origin: Origin | None = None
) -> Event:
    """The event, of the node unless `origin` says which job's rank it is."""
    details: dict[str, Any] = {
        "error": error.error,
        "kind": error.kind,
        "rule": error.rule,
        "device": error.device,
        "can_stop_job": error.can_stop,
        "is_hardware": error.of_hardware,
        **({"xid": error.xid} if error.xid is not None else {}),
        **error.figures,
    }
    return Event(
        origin=Origin(workload_uid=node_uid(node), node=node) if origin is None else origin,
        type=DEVICE_ERROR,
        event_time=time,
        data_source=data_source,
        details=details,
    )


def error_of_event(kind: str, details: Mapping[str, Any]) -> DeviceError | None:
    """The device's error that an event tells of: its own, or that of a failure with the number of an Xid."""
    xid = _whole_number(details.get("xid"))
    node = details["node"] if isinstance(details.get("node"), str) else ""
    if kind == DEVICE_ERROR and isinstance(details.get("error"), str):
        return DeviceError(
            error=details["error"][:_MOST_CHARACTERS],
            kind=str(details.get("kind", "")),
            rule=str(details.get("rule", "")),
            device=str(details.get("device", "")),
            xid=xid,
            node=node,
            can_stop=details.get("can_stop_job") is True,
            of_hardware=details.get("is_hardware") is True,
            figures={name: details[name] for name in _FIGURES if isinstance(details.get(name), str | int | float)},
        )
    if xid is None:
        return None
    return DeviceError(
        error=name_of_xid(xid),
        kind="xid",
        rule="a line of the kernel's log",
        device=str(details.get("device", "")),
        xid=xid,
        node=node,
        can_stop=can_stop(xid),
        of_hardware=is_of_hardware(xid),
    )


def _whole_number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10_000:
        return None
    return int(value) if value == int(value) else None
