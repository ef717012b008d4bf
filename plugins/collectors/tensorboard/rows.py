"""Scalars to rows: those of one step and axis together."""

from __future__ import annotations

from fnmatch import fnmatchcase

from lens_core import Origin, StepMetrics

from .files import EventFile
from .settings import TensorBoardSettings

# Files of one session share a run's keys, so a later file's rows must have higher numbers than an earlier one's.
_ORDINAL_BITS = 40
SAMPLES = "samples"
_STEPS, _SAMPLES, _UNWANTED = range(3)


class _Row:
    """The scalars of one step so far, the time of the newest and the offset behind it."""

    __slots__ = ("offset", "values", "wall")

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.wall = 0.0
        self.offset = 0


class RowBuilder:
    """Takes the scalars of one piece of one file; `rows` are those of the piece, in the order of their first scalar.

    A step whose scalars fall into two pieces gives two rows of one key with rising sequence, which the store merges.
    """

    def __init__(self, settings: TensorBoardSettings, file: EventFile) -> None:
        self.file = file
        self.offset = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self._settings = settings
        self._axes: dict[str, int] = {}
        # By axis and step.
        self._rows: dict[tuple[int, int], _Row] = {}

    def add(self, step: int, wall: float, tag: str, value: float) -> None:
        """One scalar."""
        axis = self._axes.get(tag)
        if axis is None:
            axis = self._axes[tag] = self._axis_of(tag)
        if axis == _UNWANTED:
            return
        key = (axis, step)
        row = self._rows.get(key)
        if row is None:
            self._rows[key] = row = _Row()
            if axis == _STEPS:
                self._note(step)
        row.values[tag] = value
        row.wall = wall
        row.offset = self.offset

    def _note(self, step: int) -> None:
        if self.first_step is None:
            self.first_step = step
        if self.last_step is None or step > self.last_step:
            self.last_step = step

    def rows(self, session: str, ordinal: int) -> list[StepMetrics]:
        """The rows of this piece, as those of the file with this number in its session."""
        run, settings = self.file.run, self._settings
        workload = settings.workload.replace("{run}", run).replace("{root}", self.file.root)
        origin = Origin(workload_uid=workload)
        return [
            StepMetrics(
                origin=origin,
                data_source="tensorflow",
                run_id=f"{run}/{SAMPLES}" if key[0] == _SAMPLES else run,
                session=session,
                row_step=key[1],
                values=row.values,
                event_time=row.wall or None,
                sequence=(ordinal << _ORDINAL_BITS) + row.offset,
            )
            for key, row in self._rows.items()
        ]

    def _axis_of(self, tag: str) -> int:
        wanted = not self._settings.tags or any(fnmatchcase(tag, pattern) for pattern in self._settings.tags)
        if not wanted:
            return _UNWANTED
        return _SAMPLES if tag.endswith(tuple(self._settings.samples_suffixes)) else _STEPS
