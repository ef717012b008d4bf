"""Scalars to rows: those of one step and axis together."""

from __future__ import annotations

from fnmatch import fnmatchcase

from lens_core import Origin, StepMetrics

from .files import EventFile
from .settings import TensorBoardSettings

# Files of one session share a run's keys, so a later file's rows must have higher numbers than an earlier one's.
_ORDINAL_BITS = 40
SAMPLES = "samples"


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
        self._suffixes = tuple(settings.samples_suffixes)
        self._wanted: dict[str, bool] = {}
        # By axis (over samples or not) and step.
        self._values: dict[tuple[bool, int], dict[str, float]] = {}
        self._last: dict[tuple[bool, int], tuple[float, int]] = {}

    def add(self, step: int, wall: float, tag: str, value: float) -> None:
        """One scalar."""
        wanted = self._wanted.get(tag)
        if wanted is None:
            wanted = self._wanted[tag] = self._wants(tag)
        if not wanted:
            return
        key = (tag.endswith(self._suffixes), step)
        values = self._values.get(key)
        if values is None:
            self._values[key] = values = {}
            if not key[0]:
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
                run_id=f"{run}/{SAMPLES}" if key[0] else run,
                session=session,
                row_step=key[1],
                values=values,
                event_time=self._last[key][0] or None,
                sequence=(ordinal << _ORDINAL_BITS) + self._last[key][1],
            )
            for key, values in self._values.items()
        ]

    def _wants(self, tag: str) -> bool:
        return not self._settings.tags or any(fnmatchcase(tag, pattern) for pattern in self._settings.tags)
