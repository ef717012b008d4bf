"""What a collector reports, in DLRover's shape, and which node it is."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import Any

DEFAULT_NODE_TYPE = "worker"
NODE_RANK = ("NODE_RANK", "WORKER_RANK", "GROUP_RANK", "PET_NODE_RANK", "SLURM_NODEID")
# Reports are kept far below the 4 MiB that DLRover's gRPC server takes.
MAX_CONTENT_BYTES = 256 * 1024


class DiagnosisDataType:
    """The types of reports. STACK_TRACE is not among DLRover's own: its master stores it and does nothing with it."""

    GENERIC = "GENERIC"
    TRAINING_LOG = "TRAINING_LOG"
    XPU_TIMER_METRIC = "XPU_TIMER_METRIC"
    STACK_TRACE = "STACK_TRACE"


@dataclass
class WorkerTrainingMetric:
    """One report; `to_json` is exactly DLRover's. `timestamp` in seconds, 0 is now; None is the environment's."""

    timestamp: int = 0
    data_type: str = DiagnosisDataType.GENERIC
    data_content: str = ""
    node_id: int | None = None
    node_type: str | None = None
    node_rank: int | None = None
    is_final_result: bool = False
    need_report: bool = False

    def __post_init__(self) -> None:
        self.timestamp = self.timestamp or round(time.time())
        self.node_id = get_node_id() if self.node_id is None else self.node_id
        self.node_type = get_node_type() if self.node_type is None else self.node_type
        self.node_rank = get_node_rank() if self.node_rank is None else self.node_rank

    def to_json(self) -> str:
        """The report as DLRover writes it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerTrainingMetric:
        """A report from its JSON; what this version does not know is left out. Raises ValueError."""
        known: dict[str, Any] = json.loads(text)
        return cls(**{name: value for name, value in known.items() if name in cls.__dataclass_fields__})


def get_node_id() -> int:
    """NODE_ID; 0 without one."""
    return _number("NODE_ID") or 0


def get_node_type() -> str:
    """NODE_TYPE; `worker` without one."""
    return os.environ.get("NODE_TYPE") or DEFAULT_NODE_TYPE


def get_node_rank() -> int:
    """NODE_RANK, or what launchers call it; 0 without any."""
    return known_node_rank() or 0


def known_node_rank() -> int | None:
    """NODE_RANK, or what launchers call it; None without any."""
    return next((number for number in map(_number, NODE_RANK) if number is not None), None)


def cut_text(text: str, max_bytes: int = MAX_CONTENT_BYTES, *, keep_end: bool = True) -> str:
    """A text of at most so many bytes, with a mark where it was cut."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    mark = f"[… {len(data) - max_bytes} bytes cut …]"
    room = max(0, max_bytes - len(mark.encode()) - 1)
    if keep_end:
        return f"{mark}\n{data[len(data) - room :].decode('utf-8', 'ignore')}"
    return f"{data[:room].decode('utf-8', 'ignore')}\n{mark}"


def _number(name: str) -> int | None:
    value = os.environ.get(name, "").strip()
    return int(value) if value.isdigit() else None
