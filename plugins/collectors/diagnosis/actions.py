"""The action that follows from an advice, in the shape of DLRover's node actions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum

from lens_core.plugin_api.diagnosis import Advice, Decision

LOCAL_INSTANCE = -3


class DiagnosisActionType(str, Enum):
    """The actions; the values are DLRover's, and compare equal to its strings."""

    NONE = Decision.NONE.value
    RESTART_WORKER = Decision.RESTART_WORKER.value
    RELAUNCH_WORKER = Decision.RELAUNCH_WORKER.value
    JOB_ABORT = Decision.JOB_ABORT.value


@dataclass(frozen=True)
class DiagnosisAction:
    """One action: `reason` says why in words, `cause` by name, `evidence` is the line that told. Times in seconds."""

    action_type: DiagnosisActionType
    reason: str = ""
    cause: str = ""
    evidence: str = ""
    rank: int | None = None
    instance: int = LOCAL_INSTANCE
    timestamp: float = field(default_factory=time.time)

    @classmethod
    def of(cls, advice: Advice) -> DiagnosisAction:
        """The action of an advice."""
        kind = DiagnosisActionType(advice.decision.value)
        return cls(kind, advice.reason, advice.cause.value, advice.evidence, advice.rank)
