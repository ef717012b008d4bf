"""The results of detectors: verdicts on frameworks, and records with the state that made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from .records import Origin, Record


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


class Processed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a processor: the records that go on, and the state that it changed (None: forget the key).

    `derived` of the records were not there before; `merged` of those that came became part of another.
    """

    records: Sequence[Record]
    state_changes: Mapping[str, bytes | None] = {}
    derived: int = 0
    merged: int = 0


class RecordProcessor(Protocol):
    """Processes records before they are stored: detectors, log streams.

    Calls never overlap, but may come from different threads. `process` is also called without records now and
    then, so that silence can be noticed.
    """

    def load(self, state: Mapping[str, bytes]) -> None:
        """Take up the state that was stored with the last batch; called once, before all else."""

    def process(self, records: Sequence[Record]) -> Processed:
        """Understand records; what state this changes is stored in one transaction with the records."""
        ...

    def end_jobs(self, is_over: Callable[[Origin], bool]) -> Mapping[str, bytes | None]:
        """Expect nothing more of the jobs with these origins; returns the state that this changes."""
        return {}

    def rollback(self) -> None:
        """The result of the last `process` was not stored: take its changes of state back."""
