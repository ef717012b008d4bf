"""Is it hung, what was it doing, should it restart: rules over what collectors, logs and runs have reported.

Pure functions without I/O. `stacks` and `xpu_timer` read what collectors report, `merging` finds the odd rank out,
`hang` answers whether a job is hung, `failures` what to do about a failed one.
"""

from __future__ import annotations

from .event_failures import failures_since_start
from .facts import Facts, Finding, HangVerdict, Happened, Limits, Progress
from .failure_patterns import Cause
from .failure_shapes import failures_of
from .failures import Advice, Decision, RankFailure, advise
from .hang import judge_hang
from .stack_rules import StackGroup, merge_stacks, suspects_of
from .stacks import RankStack, StackReport, ThreadStack, decode_report, encode_report

__all__ = [
    "Advice",
    "Cause",
    "Decision",
    "Facts",
    "Finding",
    "HangVerdict",
    "Happened",
    "Limits",
    "Progress",
    "RankFailure",
    "RankStack",
    "StackGroup",
    "StackReport",
    "ThreadStack",
    "advise",
    "decode_report",
    "encode_report",
    "failures_of",
    "failures_since_start",
    "judge_hang",
    "merge_stacks",
    "suspects_of",
]

TRAINING_LOG = "TRAINING_LOG"
XPU_TIMER_METRIC = "XPU_TIMER_METRIC"
STACK_TRACE = "STACK_TRACE"
