"""The verdict about a workload: what it runs on, how sure that is, and which opinions contradict each other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Conflict(msgspec.Struct, frozen=True):
    """A source that names another framework in a layer than the verdict does."""

    layer: str
    source: str
    framework: str
    confidence: float
    winner: str
    winning_source: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The frameworks that a workload runs on. `framework` is the wrapper where there is one, else the base."""

    framework: str = ""
    framework_layer: str = ""
    wrapper_framework: str = ""
    base_framework: str = ""
    confidence: float = 0.0
    method: str = ""
    workload_type: str = ""
    status: str = "unknown"
    sources: Sequence[str] = ()
    conflicts: Sequence[Conflict] = ()
