"""Reading training logs: what detectors declare, and the engine that runs it."""

from __future__ import annotations

from ...plugin_api.log_formats import EventPattern, Field, LogFormat, Mark, Table
from .engine import Context, LineEngine
from .readings import FrameworkHint, LogEvent, Reading

__all__ = [
    "Context",
    "EventPattern",
    "Field",
    "FrameworkHint",
    "LineEngine",
    "LogEvent",
    "LogFormat",
    "Mark",
    "Reading",
    "Table",
]
