"""The common parts of diagnosis collectors: their data, their options, a client."""

from __future__ import annotations

import json
import logging
import os
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

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
    return _parse_variable("NODE_ID") or 0


def get_node_type() -> str:
    """NODE_TYPE; `worker` without one."""
    return os.environ.get("NODE_TYPE") or DEFAULT_NODE_TYPE


def get_node_rank() -> int:
    """NODE_RANK, or what launchers call it; 0 without any."""
    return known_node_rank() or 0


def known_node_rank() -> int | None:
    """NODE_RANK, or what launchers call it; None without any."""
    return next((number for number in map(_parse_variable, NODE_RANK) if number is not None), None)


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


def _parse_variable(name: str) -> int | None:
    value = os.environ.get(name, "").strip()
    return int(value) if value.isdigit() else None


logger = logging.getLogger("lens.diagnosis")


@runtime_checkable
class DiagnosisClient(Protocol):
    """Whatever takes reports: Lens' own clients, DLRover's MasterClient, anybody's object with this method."""

    def report_diagnosis_agent_metrics(self, data: Any) -> Any:
        """Take one report; raises when it was not taken."""
        ...


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's facts when it makes its collectors; None for unknown ones."""

    training_log_file: str | None = None
    node_rank: int | None = None
    local_world_size: int | None = None


class DataCollector(ABC):
    """A source of reports: the agent asks `is_enabled`, calls `collect_data`, and hands what is there to `store_data`.

    A third party's collector class (announced by `lens_collectors`) joins the agent by a classmethod
    `data_collector(options: AgentOptions) -> DataCollector | None`.
    """

    data_type: ClassVar[str]
    # The name of the collector in messages: "Reported <what> content", "<what> data not reported".
    what: ClassVar[str]
    interval_seconds: ClassVar[float] = 30.0

    def __init__(self) -> None:
        self.node_rank: int | None = None
        self._client: Any = None
        self._has_warned = False

    def set_client(self, client: Any) -> None:
        """Set the receiver of reports: any object with `report_diagnosis_agent_metrics`; None for nobody."""
        self._client = client
        self._has_warned = False

    @abstractmethod
    def is_enabled(self) -> bool:
        """Whether there is anything to collect here."""

    @abstractmethod
    def collect_data(self) -> Any:
        """Collect once; something false when there is nothing."""

    def to_text(self, data: Any) -> str:
        """The content of the report. Raises TypeError for data that this collector did not make."""
        if not isinstance(data, str):
            raise TypeError(f"a str was expected, not a {type(data).__name__}")
        return data

    def store_data(self, data: Any) -> None:
        """Report what was collected. Never raises: what goes wrong is logged."""
        try:
            content = cut_text(self.to_text(data))
        except (TypeError, ValueError, AttributeError) as error:
            logger.warning("Invalid %s data, not reported: %s", self.what, error)
            return
        if self._client is None:
            self._warn_once()
            return
        try:
            self._client.report_diagnosis_agent_metrics(self.metric(content))
        except Exception as error:  # noqa: BLE001 - reporting must never disturb the training
            logger.error("Failed to report %s data to master: %s", self.what, str(error) or type(error).__name__)
        else:
            logger.info("Reported %s content: %d characters", self.what, len(content))

    def metric(self, content: str) -> WorkerTrainingMetric:
        """A report of this collector, from this node, now."""
        return WorkerTrainingMetric(
            data_type=self.data_type,
            data_content=content,
            node_id=get_node_id(),
            node_type=get_node_type(),
            node_rank=get_node_rank() if self.node_rank is None else self.node_rank,
        )

    def _warn_once(self) -> None:
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        logger.log(level, "Master client not set, %s data not reported", self.what)
