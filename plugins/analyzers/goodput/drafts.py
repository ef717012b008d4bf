"""An attempt while its records are read, whether they come from a log or from a store."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...device_errors import error_of_event
from .device_causes import SeenError, find_cause
from .facts import Attempt, DataWait, DataWaits, Row, Rows, Span

# The ends that are not clean, the least telling first: a launcher that stops its other processes says little.
ENDS = ("process_terminated", "training_failed", "collective_timeout", "out_of_memory")
PREEMPTED = "preempted"
DATA_WAIT = "data_loading_time_ms"
# The same of one rank: those of all ranks stand in one row.
DATA_WAIT_OF_RANK = f"{DATA_WAIT}/rank_"
BATCH = "global_batch_size"
# Their steps are a rollout and a training phase of changing lengths.
PHASED = frozenset({"verl", "openrlhf", "nemo_rl", "areal", "prime_rl"})
_MAX_STEP = 2**53
_STEP_IN_PATH = re.compile(r"(?:\biter_|\bglobal_?step[_-]?|\bstep[=_-]|-step=|\bcheckpoint-)(\d{1,15})(?![\d_])", re.I)


@dataclass(frozen=True)
class Said:
    """An event as the ledger needs it, with its time in seconds since the epoch."""

    type: str
    time: float
    iteration: int | None
    details: Mapping[str, Any]
    node: str
    rank: int | None

    @property
    def seconds(self) -> float:
        """Return the duration that the event reports; 0 without one."""
        seconds = self.details.get("duration_seconds")
        return max(0.0, float(seconds)) if isinstance(seconds, int | float) and math.isfinite(seconds) else 0.0

    @property
    def is_request(self) -> bool:
        """Whether a process was told to end: by SIGTERM, or by a scheduler that says why."""
        if self.type != "process_terminated":
            return False
        said = [str(self.details.get(name, "")).upper() for name in ("signal", "number", "reason")]
        return any(word in ("15", "15.0") or "SIGTERM" in word or "PREEMPT" in word for word in said)


@dataclass
class Draft:
    """One attempt while its records are read."""

    start: float | None = None
    end: float | None = None
    cause: str = ""
    ended_cleanly: bool = False
    was_asked: bool = False
    node: str = ""
    rank: int | None = None
    resumed_from: int | None = None
    restore_seconds: float = 0.0
    batches: list[tuple[int, float]] = field(default_factory=list)
    restarts: int | None = None
    gpus: int | None = None
    columns: list[Rows] = field(default_factory=list)
    waits: DataWaits | None = None
    rows: list[Row] = field(default_factory=list)
    saves: list[Span] = field(default_factory=list)
    evaluations: list[Span] = field(default_factory=list)
    data: list[DataWait] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    errors: list[SeenError] = field(default_factory=list)

    def finish(self, gpus: int | None) -> Attempt:
        """The attempt that it has become."""
        configurations = _changes(self.batches)
        return Attempt(
            rows=self.rows,
            columns=self.columns,
            waits=self.waits,
            start=self.start,
            end=self.end,
            resumed_from=self.resumed_from,
            restore_seconds=self.restore_seconds,
            cause=self.cause,
            ended_cleanly=self.ended_cleanly,
            node=self.node,
            rank=self.rank,
            gpus=gpus,
            configuration=configurations[-1][1] if configurations else "",
            configurations=configurations if len(configurations) > 1 else [],
            restarts=self.restarts,
            saves=self.saves,
            evaluations=self.evaluations,
            data=self.data,
            stalls=self.stalls,
        )

    def begun_at(self) -> float | None:
        """The start of the process, else the first row."""
        times = self.row_times() if self.start is None else None
        return times[0] if times is not None else self.start

    def row_times(self) -> tuple[float, float] | None:
        """The times of the first and the newest row; None without one."""
        times = [row.time for row in self.rows]
        for columns in self.columns:
            if len(columns.times):
                times += [float(columns.times.min()), float(columns.times.max())]
        return (min(times), max(times)) if times else None

    def read_event(self, event: Said) -> None:
        """Take in an event that belongs to this attempt; the first word of an end counts for its time."""
        error = error_of_event(event.type, event.details)
        if error is not None:
            self.errors.append(SeenError(event.time, error, error.node or event.node, event.rank))
        if event.type in ENDS or event.type == "training_ended":
            self._read_end(event)
        elif event.type == "checkpoint_saved":
            self.saves.append(Span(event.time - event.seconds, event.time, step_of(event.iteration)))
        elif event.type == "checkpoint_loaded":
            if self.resumed_from is None:
                self.resumed_from = step_of(event.iteration)
            if self.resumed_from is None:
                self.resumed_from = step_in_path(str(event.details.get("path", "")))
            self.restore_seconds = max(self.restore_seconds, event.seconds)
        elif event.type == "evaluation":
            length = event.seconds
            begun = event.time - length
            self.evaluations.append(Span(begun, event.time, step_of(event.iteration), marker=not length))
        elif event.type == "stalled":
            self.stalls.append(event.time)

    def _read_end(self, event: Said) -> None:
        """A failure's details may come in the lines after it."""
        if self.end is None:
            self.end = event.time
        if event.type == "training_ended" and not self.cause:
            self.ended_cleanly = True
            return
        if event.type != "training_ended":
            self.ended_cleanly = False
            if not self.cause or ENDS.index(event.type) > ENDS.index(self.cause):
                self.cause = event.type
            self.was_asked = self.was_asked or event.is_request
            self.node = self.node or event.node
            self.rank = event.rank if self.rank is None else self.rank


def name_preemptions(drafts: Sequence[Draft]) -> None:
    """Call the end of processes that were told to end, and were followed by others, a preemption."""
    for draft in drafts[:-1]:
        if draft.cause == "process_terminated" and draft.was_asked:
            draft.cause = PREEMPTED


def name_device_errors(drafts: Sequence[Draft]) -> None:
    """Call the ends of attempts by the errors of devices that came with them; the errors say where it happened."""
    for index, draft in enumerate(drafts):
        is_last = index == len(drafts) - 1
        if draft.ended_cleanly or (is_last and not draft.cause) or draft.cause == "out_of_memory":
            continue
        times = draft.row_times()
        following = None if is_last else drafts[index + 1].begun_at()
        found = find_cause(draft.errors, times[1] if times else None, draft.end, following)
        if found is not None:
            draft.cause = found.error.error
            draft.node, draft.rank = found.node or draft.node, found.rank if found.node else draft.rank


def _changes(batches: Sequence[tuple[int, float]]) -> list[tuple[int, str]]:
    """Each batch size with the first step that has it, in the order of the steps."""
    found: list[tuple[int, str]] = []
    for step, size in sorted(batches):
        name = f"{size:g}"
        if not found or found[-1][1] != name:
            found.append((step, name))
    return found


def step_in_path(path: str) -> int | None:
    """The step in the name of a checkpoint: iter_0000100, global_step100, epoch=1-step=100, checkpoint-100."""
    found = _STEP_IN_PATH.findall(path[:1000])
    return step_of(int(found[-1])) if found else None


def step_of(number: int | None) -> int | None:
    """A step that can be counted with; None for one that no training reaches."""
    return number if number is not None and 0 <= number < _MAX_STEP else None
