"""What all diagnosis collectors share: a client, one way to report, one set of messages."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from .data import WorkerTrainingMetric, cut_text, get_node_id, get_node_rank, get_node_type

logger = logging.getLogger("lens.diagnosis")


@runtime_checkable
class DiagnosisClient(Protocol):
    """Whatever takes reports: Lens' own clients, DLRover's MasterClient, anybody's object with this method."""

    def report_diagnosis_agent_metrics(self, data: Any) -> Any:
        """Take one report; raises when it was not taken."""
        ...


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent knows when it makes its collectors; None where nobody said."""

    training_log_file: str | None = None
    node_rank: int | None = None
    local_world_size: int | None = None


class DataCollector(ABC):
    """A source of reports: the agent asks `is_enabled`, calls `collect_data`, and hands what is there to `store_data`.

    A third party's collector class (announced by `lens_collectors`) joins the agent by a classmethod
    `data_collector(options: AgentOptions) -> DataCollector | None`.
    """

    data_type: ClassVar[str]
    # How the collector is called in messages: "Reported <what> content", "<what> data not reported".
    what: ClassVar[str]
    interval_seconds: ClassVar[float] = 30.0

    def __init__(self) -> None:
        self.node_rank: int | None = None
        self._client: Any = None
        self._has_warned = False

    def set_client(self, client: Any) -> None:
        """Whom reports go to: any object with `report_diagnosis_agent_metrics`; None for nobody."""
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
