"""Follows event files, and makes rows of their events, piece by piece."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from lens_core import Origin, Record, StepMetrics
from lens_core.plugin_api.following import Followed
from lens_core.plugin_api.protobuf import WireError

from .events import EventReader, read_frames


class TensorBoardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the tensorboard collector.

    `paths`: log directories; every folder below one that holds event files is a run, named by its path from there.
    `workload`: whose rows these are; `{run}` stands for the run, `{root}` for the log directory's name. `tags`: only
    scalars whose tag matches one of these patterns (* and ?); all if left out. `samples_suffixes`: tags that end like
    one of these are over samples instead of steps (Megatron's `lm loss vs samples`) and become a run of their own.
    `bytes_at_once`: so much is read and held in memory at one time. `max_files`: event files that are followed.
    """

    paths: Annotated[list[str], Meta(min_length=1)]
    workload: str = "{run}"
    tags: list[str] = []
    samples_suffixes: list[str] = msgspec.field(default_factory=lambda: [" vs samples", "_vs_samples"])
    bytes_at_once: Annotated[int, Meta(ge=64 * 1024, le=256 * 1024 * 1024)] = 8 * 1024 * 1024
    max_files: Annotated[int, Meta(ge=1)] = 10_000


# events.out.tfevents.SECONDS.HOST, with .PID.NUMBER by most writers, and whatever suffix somebody asked for.
_TIME = re.compile(r"tfevents\.(\d+)")
_WRITER = re.compile(r"tfevents\.\d+\.(.+?)\.(\d+)\.\d+(?:\.|$)")


class EventFile(msgspec.Struct, frozen=True):
    """An event file: its run (the folder, from the log directory), and what its name says about its writer."""

    path: str
    run: str
    root: str
    time: int
    writer: str

    @property
    def order(self) -> tuple[str, int, str]:
        """Runs one after the other, in each the file that was begun first."""
        return (self.run, self.time, self.path)


class Progress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Progress in a file. `session` is its writer's, `ordinal` its place among the files of that session; `generation`
    counts how often the file was replaced.
    """

    inode: int
    offset: int = 0
    session: str = ""
    ordinal: int = 0
    generation: int = 0
    last_step: int | None = None
    problem: str = ""


class State(Followed, kw_only=True):
    """State that outlasts a restart: progress by path."""

    files: dict[str, Progress] = msgspec.field(default_factory=dict)


def event_files(root: Path, max_files: int) -> list[EventFile]:
    """All event files below a log directory, symbolic links to folders included once; oldest of a run first."""
    found = []
    for path in _walk(root):
        time = _TIME.search(path.name)
        if time is None:
            continue
        writer = _WRITER.search(path.name)
        run = path.parent.relative_to(root).as_posix()
        by = f"{writer[1]}.{writer[2]}" if writer else ""
        found.append(EventFile(str(path), root.name if run == "." else run, root.name, int(time[1]), by))
        if len(found) >= max_files:
            break
    return sorted(found, key=lambda file: file.order)


def _walk(root: Path) -> Iterator[Path]:
    seen: set[tuple[int, int]] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        for name in sorted(names):
            if "tfevents" in name:
                yield Path(folder, name)


# Files of one session share a run's keys, so a later file's rows must have higher numbers than an earlier one's.
_ORDINAL_BITS = 40
SAMPLES = "samples"
_STEPS, _SAMPLES, _UNWANTED = range(3)


class _Row:
    """The scalars of one step so far, the time of the newest and the offset after it."""

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

    def add_scalar(self, step: int, wall: float, tag: str, value: float) -> None:
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
                self._count_row(step)
        row.values[tag] = value
        row.wall = wall
        row.offset = self.offset

    def _count_row(self, step: int) -> None:
        if self.first_step is None:
            self.first_step = step
        if self.last_step is None or step > self.last_step:
            self.last_step = step

    def build_rows(self, session: str, ordinal: int) -> list[StepMetrics]:
        """The rows of this piece, as those of the file with this number in its session."""
        run, settings = self.file.run, self._settings
        workload = settings.workload.replace("{run}", run).replace("{root}", self.file.root)
        origin = Origin(workload_uid=workload)
        return [
            StepMetrics(
                origin=origin,
                data_source="tensorflow",
                echo_of="tensorflow",
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


class Piece(NamedTuple):
    """A piece of a file; `damaged` frames could not be understood, `skipped` ones were too large to hold."""

    records: list[Record]
    progress: Progress
    size: int
    has_more: bool
    damaged: int
    skipped: int


def read_piece(
    file: EventFile,
    before: Progress | None,
    others: Iterable[tuple[EventFile, Progress]],
    settings: TensorBoardSettings,
) -> Piece:
    """The next piece of a file, of at most `bytes_at_once`. Raises OSError.

    `others` are the files of the same run that were begun earlier: one that the same process wrote, whose steps this
    one goes on, is the same session.
    """
    with Path(file.path).open("rb") as opened:
        progress = _next_progress(before, os.fstat(opened.fileno()), file)
        builder = RowBuilder(settings, file)
        reader = EventReader(builder.add_scalar)
        damaged = 0

        def parse_event(event: bytes, end: int) -> None:
            nonlocal damaged
            builder.offset = end
            try:
                reader.read_scalars(event)
            except WireError:
                damaged += 1

        frames = read_frames(opened, progress.offset, settings.bytes_at_once, parse_event)
    progress = _joined(progress, builder, others)
    rows = builder.build_rows(progress.session, progress.ordinal)
    last_step = max((step for step in (progress.last_step, builder.last_step) if step is not None), default=None)
    after = msgspec.structs.replace(progress, offset=frames.end, last_step=last_step, problem=frames.problem)
    return Piece(list(rows), after, frames.end - progress.offset, frames.has_more, damaged, frames.skipped)


def _next_progress(before: Progress | None, status: os.stat_result, file: EventFile) -> Progress:
    """Return where to continue; a file that was replaced or truncated is a new one."""
    if before is not None and before.inode == status.st_ino and before.offset <= status.st_size:
        return before
    generation = before.generation + 1 if before is not None else 0
    session = Path(file.path).name + (f"~{generation}" if generation else "")
    return Progress(inode=status.st_ino, session=session, generation=generation)


def _joined(progress: Progress, builder: RowBuilder, others: Iterable[tuple[EventFile, Progress]]) -> Progress:
    """The session of a file becomes known with its first step."""
    if progress.last_step is not None or builder.first_step is None or not builder.file.writer:
        return progress
    same = [other for file, other in others if file.writer == builder.file.writer and other.last_step is not None]
    if not same:
        return progress
    newest = max(same, key=lambda other: (other.last_step or 0, other.ordinal))
    if newest.last_step is None or builder.first_step <= newest.last_step:
        return progress
    return msgspec.structs.replace(progress, session=newest.session, ordinal=newest.ordinal + 1)


def is_read(file: EventFile, known: Mapping[str, Progress]) -> bool:
    """Whether a file has nothing new, by its size alone. Raises OSError."""
    progress = known.get(file.path)
    if progress is None:
        return False
    status = os.stat(file.path)
    return status.st_ino == progress.inode and status.st_size == progress.offset
