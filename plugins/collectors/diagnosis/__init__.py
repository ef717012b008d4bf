"""The diagnosis of a training node: what collects and reports, and what decides after a failure.

agent = DiagnosisAgent.singleton_instance(training_log_file="/path/to/training.log", node_rank=0)
agent.set_client(MasterClient(master_addr="localhost:50051"))
agent.start()
"""

from __future__ import annotations

from .actions import DiagnosisAction, DiagnosisActionType
from .agent import DiagnosisAgent
from .base import AgentOptions, DataCollector, DiagnosisClient
from .data import DiagnosisDataType, WorkerTrainingMetric
from .log import LogCollector
from .master_client import EmbeddedClient, LensClient, MasterClient
from .metric import MetricCollector
from .stack import StackCollector

__all__ = [
    "AgentOptions",
    "DataCollector",
    "DiagnosisAction",
    "DiagnosisActionType",
    "DiagnosisAgent",
    "DiagnosisClient",
    "DiagnosisDataType",
    "EmbeddedClient",
    "LensClient",
    "LogCollector",
    "MasterClient",
    "MetricCollector",
    "StackCollector",
    "WorkerTrainingMetric",
]
