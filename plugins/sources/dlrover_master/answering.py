"""DLRover's messages as records, and the answers that its clients expect."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lens_core import Diagnosis, Event, LensError, Origin, Record, StepMetrics

from ...dlrover import Wire, report_from_wire
from ...dlrover.messages import Request

DATA_SOURCE = "dlrover"
_MAX_TEXT = 65536
_NO_ACTION = {
    "timestamp": 0,
    "action_type": "no_action",
    "instance": -1,
    "expired_time_period": 60_000,
    "executable_time_period": 0,
}


class NotTaken(LensError):
    """A message that this master has no use for; the sender is told so."""


class Sender(msgspec.Struct, frozen=True):
    """The sender of a report: the job, and the node in it."""

    origin: Origin
    node_id: int
    node_type: str


def sender_of(request: Request, job_uid: str, default_workload_uid: str) -> Sender:
    """Return the sender of a request. A job that names itself is the workload of that name."""
    workload = job_uid or default_workload_uid
    name = f"{workload}-{request.node_type or 'worker'}-{request.node_id}"
    return Sender(Origin(workload_uid=workload, pod_name=name), request.node_id, request.node_type)


def records_of(message: Wire, sender: Sender) -> list[Record]:
    """The records of a report. Raises NotTaken, or LensError for one that cannot be read."""
    make = _MAKERS.get(message.name)
    if make is None:
        raise NotTaken(f"{message.name} is not taken: this master only receives diagnosis reports")
    return make(message.fields, sender, message)


def answer_of(message: Wire) -> Wire:
    """The answer to a question: nothing is to be done, checked, restarted or configured. Raises NotTaken."""
    make = _ANSWERS.get(message.name)
    if make is None:
        raise NotTaken(f"{message.name} is not answered: this master only receives diagnosis reports")
    return make()


def _no_action() -> Wire:
    content = msgspec.json.encode({**_NO_ACTION, "timestamp": int(time.time())}).decode()
    action = Wire("DiagnosisAction", {"action_cls": "NoAction", "action_content": content})
    return Wire("HeartbeatResponse", {"action": action})


def _diagnosis(fields: Mapping[str, Any], sender: Sender, message: Wire) -> list[Record]:
    report = report_from_wire(message)
    return [
        Diagnosis(
            origin=msgspec.structs.replace(sender.origin, node_rank=report.node_rank),
            data_type=report.data_type,
            data_content=report.data_content,
            node_id=report.node_id,
            node_type=report.node_type or sender.node_type,
            node_rank=report.node_rank,
            timestamp=float(report.timestamp),
        )
    ]


def _step_records(fields: Mapping[str, Any], sender: Sender, message: Wire) -> list[Record]:
    step, at = _parse_number(fields.get("step")), _parse_number(fields.get("timestamp")) or time.time()
    elapsed = _parse_number(fields.get("elapsed_time_per_step"))
    values = {"elapsed_time_per_iteration_ms": elapsed * 1000.0} if elapsed else {"global_step": step}
    row = StepMetrics(
        origin=sender.origin,
        data_source=DATA_SOURCE,
        row_step=int(step),
        values=values,
        event_time=at,
        sequence=int(at * 1_000_000),
    )
    return [row]


def _failure(fields: Mapping[str, Any], sender: Sender, message: Wire) -> list[Record]:
    details = {
        "reason": str(fields.get("error_data", ""))[:_MAX_TEXT],
        "restart_count": int(_parse_number(fields.get("restart_count"))),
        "level": str(fields.get("level", ""))[:100],
        "node_id": sender.node_id,
    }
    event = Event(
        origin=sender.origin, type="training_failed", data_source=DATA_SOURCE, event_time=time.time(), details=details
    )
    return [event]


def _nothing(fields: Mapping[str, Any], sender: Sender, message: Wire) -> list[Record]:
    return []


def _parse_number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value == value else 0.0


# Requests of an agent while it starts and runs; without an answer the first would stop it, the others fill its log.
_ANSWERS: dict[str, Callable[[], Wire]] = {
    "HeartBeat": _no_action,
    "PreCheckRequest": lambda: Wire("PreCheckResponse", {"status": "DISABLED", "reason": ""}),
    "ElasticRunConfigRequest": lambda: Wire("ElasticRunConfig", {"configs": {}}),
    "CheckHardwareResetRequest": lambda: Wire("ParallelConfig", {"restart": False}),
}
_Maker = Callable[[Mapping[str, Any], Sender, Wire], list[Record]]
_MAKERS: dict[str, _Maker] = {
    "DiagnosisReportData": _diagnosis,
    "GlobalStep": _step_records,
    "NodeFailure": _failure,
    # Taken and of no further use: an agent that goes on sending them has no reason to complain.
    "ResourceStats": _nothing,
    "AtorchEvent": _nothing,
    "NodeEvent": _nothing,
    "Event": _nothing,
}
