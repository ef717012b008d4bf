"""For tests of plugins: a host of given classes, a context, and contract checks that any plugin can be run through.

`SINK_CHECKS` with a `SinkHarness`, `check_source`, `check_collector`, `check_detector`. A check that finds something
raises AssertionError with what the plugin did and what it should have done.
"""

from __future__ import annotations

from .collectors import check_collector
from .detectors import check_detector
from .hosts import host_of, make_context
from .receiver import HttpReceiver, Trouble
from .sinks import SINK_CHECKS, SinkHarness
from .sources import RecordingDoor, check_source
from .waiting import until

__all__ = [
    "SINK_CHECKS",
    "HttpReceiver",
    "RecordingDoor",
    "SinkHarness",
    "Trouble",
    "check_collector",
    "check_detector",
    "check_source",
    "host_of",
    "make_context",
    "until",
]
