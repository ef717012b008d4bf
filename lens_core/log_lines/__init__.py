"""Reading training logs: what detectors declare, and the engine that runs it."""

from __future__ import annotations

from .engine import Context, LineEngine
from .formats import EventPattern, Field, LogFormat, Mark, Table
from .readings import Happening, Reading, Sign

__all__ = [
    "Context",
    "EventPattern",
    "Field",
    "Happening",
    "LineEngine",
    "LogFormat",
    "Mark",
    "Reading",
    "Sign",
    "Table",
]
