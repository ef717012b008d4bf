"""The source of lines: a container of a pod and its job, with the parts of lines whose ends have not come."""

from __future__ import annotations

from typing import NamedTuple

from ...model.records import Origin
from .engine import Context


class PartialLine:
    """The parts of a line whose end has not come, joined only when it has."""

    __slots__ = ("length", "parts")

    def __init__(self, beginning: str = "") -> None:
        self.parts = [beginning] if beginning else []
        self.length = len(beginning)

    def append_part(self, part: str) -> None:
        """Add the next part."""
        self.parts.append(part)
        self.length += len(part)

    def text(self) -> str:
        """All parts as one text."""
        return "".join(self.parts)


class StreamContext(NamedTuple):
    """The source of lines: a container of a pod, the job to which it belongs, and the state kept for it."""

    origin: Origin
    job: str
    stream: str
    context: Context
    partial: dict[str, PartialLine]
    positions: dict[str, int]
