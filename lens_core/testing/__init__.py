"""For tests of plugins: a host of given classes, a context, and contract checks that any plugin can be run through.

`SINK_CHECKS` with a `SinkHarness`, `check_source`, `check_collector`, `check_detector`, `check_analyzer` with a
`MemoryStore`. A check that finds something raises AssertionError with what the plugin did and what it should have done.
The fixtures are those of `lens_pytest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.deprecation import deprecated_names
from .analyzers import check_analyzer
from .clock import FakeClock
from .collectors import check_collector
from .detectors import check_detector
from .hosts import host_of, host_with, make_context
from .lines import detections, evidence, read_line
from .memory_store import MemoryStore
from .receiver import HttpReceiver, Trouble
from .running import LensFactory, RunningLens
from .sinks import SINK_CHECKS, SinkCheck, SinkHarness
from .sources import RecordingGate, check_source
from .waiting import until

__all__ = [
    "SINK_CHECKS",
    "FakeClock",
    "HttpReceiver",
    "LensFactory",
    "MemoryStore",
    "RecordingGate",
    "RunningLens",
    "SinkCheck",
    "SinkHarness",
    "Trouble",
    "check_analyzer",
    "check_collector",
    "check_detector",
    "check_source",
    "detections",
    "evidence",
    "host_of",
    "host_with",
    "make_context",
    "read_line",
    "until",
]

# Hidden from type checkers, which would else believe that every name is here.
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__)
