"""The diagnosis of a training node: what collects and reports, and what decides after a failure.

agent = DiagnosisAgent.singleton_instance(training_log_file="/path/to/training.log", node_rank=0)
agent.set_client(MasterClient(master_addr="localhost:50051"))
agent.start()
"""

from __future__ import annotations

from .agent import DiagnosisAction, DiagnosisActionType, DiagnosisAgent
from .base import AgentOptions, DataCollector, DiagnosisClient, DiagnosisDataType, WorkerTrainingMetric
from .master_client import EmbeddedClient, LensClient, MasterClient
from .readers import LogCollector, MetricCollector, StackCollector

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
