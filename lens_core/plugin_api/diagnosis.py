"""Public names for plugins that collect stacks and act on failures; the rules are in `lens_core/diagnosis/`."""

from __future__ import annotations

from ..diagnosis import Advice, Cause, Decision, advise, failures_of
from ..diagnosis.failures import DEFAULT_MAX_RESTARTS
from ..diagnosis.stacks import RankStack, StackReport, ThreadStack, encode_report, is_python, own_frames
from ..diagnosis.xpu_timer import pods_of, samples_only
from ..model.records import LOG_TAIL

__all__ = [
    "DEFAULT_MAX_RESTARTS",
    "LOG_TAIL",
    "Advice",
    "Cause",
    "Decision",
    "RankStack",
    "StackReport",
    "ThreadStack",
    "advise",
    "encode_report",
    "failures_of",
    "is_python",
    "own_frames",
    "pods_of",
    "samples_only",
]
