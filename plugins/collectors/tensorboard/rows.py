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
        self._values: dict[tuple[int, int], dict[str, float]] = {}
        self._last: dict[tuple[int, int], tuple[float, int]] = {}

    def add(self, step: int, wall: float, tag: str, value: float) -> None:
        """One scalar."""
        axis = self._axes.get(tag)
        if axis is None:
            axis = self._axes[tag] = self._axis_of(tag)
        if axis == _UNWANTED:
            return
        key = (axis, step)
        values = self._values.get(key)
        if values is None:
            self._values[key] = values = {}
            if axis == _STEPS:
                self._note(step)
        values[tag] = value
        self._last[key] = (wall, self.offset)

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
                values=values,
                event_time=self._last[key][0] or None,
                sequence=(ordinal << _ORDINAL_BITS) + self._last[key][1],
            )
            for key, values in self._values.items()
        ]

    def _axis_of(self, tag: str) -> int:
        wanted = not self._settings.tags or any(fnmatchcase(tag, pattern) for pattern in self._settings.tags)
        if not wanted:
            return _UNWANTED
        return _SAMPLES if tag.endswith(tuple(self._settings.samples_suffixes)) else _STEPS
