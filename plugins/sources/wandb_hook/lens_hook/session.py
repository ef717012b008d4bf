"""One run in one process: its ids, its step counter, its axes."""

from __future__ import annotations

import fnmatch
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Union

from . import say
from .buffer import Buffer
from .values import Number

# The facts of a run; a function is called when evidence is made.
Facts = Union[Mapping[str, Any], Callable[[], Mapping[str, Any]]]
_MAX_AXES = 1000
_MAX_GROUPS = 1000
_MAX_NAMES = 20_000
# Steps that the Hugging Face Trainer, Lightning and Keras' two loggers add; Keras defines only one of its two.
USUAL_AXES = ("train/global_step", "trainer/global_step", "batch/batch_step", "epoch/epoch")


class Session:
    """One run of one process (or one event writer); `id` names this start of it."""

    def __init__(self, data_source: str, run_id: str, buffer: Buffer | None = None) -> None:
        self.buffer = buffer or Buffer(0, 1)
        self.data_source = data_source
        self.run_id = run_id
        self.id = f"{int(time.time() * 1e6)}-{secrets.token_hex(6)}"
        self.facts: Facts = {}
        self.has_events = False  # whether its start and end are told
        self.is_beside_run = False  # whether another session's start and end are told that was open with this one
        self.wants_evidence = True
        self.evidence_due = True
        self.evidence_sent = 0
        self.ended = False
        self.process = os.getpid()
        self.axes: list[tuple[str, str]] = []
        self.latest_step = 0  # of the latest row that wandb has kept
        self.names: set[str] = set()  # of its metrics
        self.latest_names: object = None  # of the latest row
        self._carried: dict[
            str, Number | None
        ] = {}  # the latest value of each axis that wandb adds where it is missing
        self._axis_groups: dict[tuple[str, ...], list[tuple[str, list[str]]]] = {}
        self._counter = 0  # that of wandb's service, as the latest row left it
        self._skipped = 0  # so far the run object's counter is ahead of it
        self._next_step = 0
        self.row_prefix = self._row_prefix()

    def _row_prefix(self) -> bytes:
        text = f'{{"record":"step_metrics","data_source":{json.dumps(self.data_source)},{self.identity_json()},'
        return text.encode("ascii")

    def identity_json(self) -> str:
        """The part that all of this session's records share, as JSON without braces."""
        return f'"run_id":{json.dumps(self.run_id)},"session":{json.dumps(self.id)}'

    def place(self, step: int | None, commit: bool | None, before: int | None, after: int | None) -> tuple[int, bool]:
        """The step that wandb stores the row at, and whether wandb drops it; rows in the order of their calls' ends.

        `before` and `after` are the counter of the run object around the call (None where it has none: then ours runs
        alone). The counter that stores is another one, in wandb's service: a row that it drops does not move it, so the
        run object's is ahead by `_skipped`. A call that began before the previous row's had counted was another
        thread's, made at once: its counter lags behind, so ours is used if it is ahead, and two rows never get one
        implicit step.
        """
        counter = self._next_step if before is None else before - self._skipped
        if counter < self._counter:
            counter = max(counter, self._next_step)
        counts = 1 if commit or (step is None and commit is None) else 0
        row_step = counter if step is None else step
        dropped = before is not None and row_step < counter
        if dropped:
            self._skipped += counts
            self._next_step = counter
        else:
            if before is not None and step is not None:
                self._skipped = max(0, before - step)  # both counters go to the step, unless one is there already
            self._next_step = max(counter, row_step) + counts
            self.latest_step = row_step
        if after is not None:
            self._counter = after - self._skipped
        return row_step, dropped

    def note_names(self, token: object, names: tuple[str, ...]) -> None:
        """Remember the names of a row; `token` stands for them in `latest_names`."""
        self.latest_names = token
        if len(self.names) < _MAX_NAMES:
            self.names.update(names)

    def define_axis(self, name: str, step_metric: str, *, carried: bool = False) -> None:
        """Remember a `define_metric(name, step_metric=...)`; `name` may hold wildcards.

        wandb adds the latest value of an axis that is `carried` to rows that need it and have none.
        """
        if (name, step_metric) in self.axes:
            return
        if len(self.axes) >= _MAX_AXES:
            say.once("axes", f"a run has more than {_MAX_AXES} metrics with axes of their own; the others are ignored")
            return
        # A later definition of the name replaces the earlier one.
        self.axes = [known for known in self.axes if known[0] != name] + [(name, step_metric)]
        self._axis_groups = {}
        if carried:
            self._carried.setdefault(step_metric, None)

    def by_axis(self, values: dict[str, Number]) -> list[dict[str, Number]]:
        """A row as wandb stores it, in one part for each axis that its metrics have, and carried axes filled in."""
        if not self.axes:
            return [values]
        names = tuple(values)
        groups = self._axis_groups.get(names)
        if groups is None:
            if len(self._axis_groups) >= _MAX_GROUPS:
                self._axis_groups = {}
            groups = self._axis_groups[names] = self._group_by_axis(names)
        for axis in self._carried:
            if isinstance(values.get(axis), (int, float)):
                self._carried[axis] = values[axis]
        parts: list[dict[str, Number]] = []
        for axis, group in groups:
            part = {name: values[name] for name in group} if len(groups) > 1 else values
            latest = self._carried.get(axis)
            parts.append({**part, axis: latest} if axis not in part and latest is not None else part)
        return parts

    def _group_by_axis(self, names: tuple[str, ...]) -> list[tuple[str, list[str]]]:
        """Names by the axis that they are drawn over (empty where there is none), each axis with all that need it."""
        axis_of = {name: self._axis_of(name) for name in names}
        needed = set(axis_of.values())
        groups: dict[str, list[str]] = {}
        for name in names:
            # An axis stands with those that need it; else it is a metric like any other.
            groups.setdefault(name if name in needed else axis_of[name], []).append(name)
        return list(groups.items())

    def _axis_of(self, name: str) -> str:
        exact = [axis for pattern, axis in self.axes if pattern == name]
        found = exact or [axis for pattern, axis in self.axes if axis != name and _matches(name, pattern)]
        return found[0] if found else ""

    def iteration(self, values: Mapping[str, Number], row_step: int) -> int:
        """The training step of a row: its axis if it carries one, else wandb's step."""
        for pattern, axis in self.axes:
            step = _as_integer(values.get(axis))
            if step is not None and any(_matches(name, pattern) for name in values if name != axis):
                return step
        for axis in USUAL_AXES:
            step = _as_integer(values.get(axis))
            if step is not None:
                return step
        return row_step


def _matches(name: str, pattern: str) -> bool:
    if name == pattern or pattern == "*":
        return True
    return "*" in pattern and fnmatch.fnmatchcase(name, pattern)


def _as_integer(value: Number | None) -> int | None:
    if isinstance(value, int):
        return value if abs(value) < 1 << 62 else None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 62:
        return int(value)
    return None
