"""Errors of GPUs and their links, from whichever source tells of them: names, rules, and the events they become.

`slowdowns.py` names reasons why a GPU is slow, `xids.py` NVIDIA's Xid numbers. `kernel_lines.py` reads lines of the
kernel's log, `counters.py` compares counters (DCGM's and AMD's exporters, NVML), `events.py` makes events of them.
Sources and collectors report errors under the node; analyzers join them with the jobs that ran there.
"""

from __future__ import annotations

from .counters import CounterWatch, Reading, kind_of_counter
from .events import DEVICE_ERROR, DeviceError, error_of_event, event_of, node_uid
from .kernel_lines import parse_kernel_line
from .slowdowns import REASONS, reasons_of
from .xids import XID_NAMES, can_stop, name_of_xid

__all__ = [
    "DEVICE_ERROR",
    "REASONS",
    "XID_NAMES",
    "CounterWatch",
    "DeviceError",
    "Reading",
    "can_stop",
    "error_of_event",
    "event_of",
    "kind_of_counter",
    "name_of_xid",
    "node_uid",
    "parse_kernel_line",
    "reasons_of",
]
