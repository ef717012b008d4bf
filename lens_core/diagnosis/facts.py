"""Input and output of the hang rules. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ..model.records import Diagnosis

Answer = Literal["yes", "no", "unknown"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of the rules; seconds, but for the counts and factors."""

    min_stall_seconds: float = 60.0
    stall_factor: float = 3.0
    long_stall_seconds: float = 300.0
    long_stall_factor: float = 10.0
    checkpoint_seconds: float = 900.0
    xpu_fresh_seconds: float = 150.0
    xpu_confirm_seconds: float = 30.0
    xpu_gap_seconds: float = 180.0
    stack_fresh_seconds: float = 60.0
    stack_gap_seconds: float = 90.0
    stack_moved_seconds: float = 45.0
    stack_each_seconds: float = 25.0
    stack_confirm_seconds: float = 40.0
    stack_io_bytes_per_second: float = 1_000_000.0
    stack_samples: int = 3
    window_seconds: float = 1800.0


LIMITS = Limits()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one rule with its reason; `ranks` are those that it concerns."""

    rule: str
    verdict: Answer
    reason: str
    since: float | None = None
    ranks: list[str] = []


class HangVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for the whole job; `ranks` are those for which the others seem to wait."""

    verdict: Answer
    reason: str
    since: float | None = None
    ranks: list[str] = []
    findings: list[Finding] = []


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a job: when the newest came, and how long one usually takes (None: too few are known)."""

    last_step_at: float
    usual_seconds: float | None = None
    iteration: int | None = None
    data_source: str = ""


class Happened(msgspec.Struct, frozen=True):
    """An event of the job."""

    type: str
    at: float


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about a job at the time `now`."""

    now: float
    diagnoses: Sequence[Diagnosis] = ()
    progress: Progress | None = None
    events: Sequence[Happened] = ()
