from __future__ import annotations

from collections.abc import Iterator

import pytest
from lens_plugins.collectors.diagnosis import DiagnosisAgent

_VARIABLES = (
    "DLROVER_MASTER_ADDR",
    "LENS_CONFIG",
    "LENS_EMBEDDED",
    "DLROVER_MASTER_SERVICE_TYPE",
    "PRIMUS_LENS_API_BASE_URL",
    "TRAINING_LOG_FILE",
    "XPU_TIMER_PORT",
    "NODE_ID",
    "NODE_RANK",
    "NODE_TYPE",
    "RANK",
    "WORKLOAD_UID",
)


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No agent and no variables of an agent before and after each test."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(DiagnosisAgent, "_instance", None)
    yield
    agent = DiagnosisAgent._instance
    if agent is not None:
        agent.stop()
