"""Reading the next piece of an event file: its rows, and how far the file is read then."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from lens_core import Record
from lens_core.plugin_api.protobuf import WireError

from .events import EventReader
from .files import EventFile, Progress
from .frames import read_frames
from .rows import RowBuilder
from .settings import TensorBoardSettings


class Piece(NamedTuple):
    """What was read of a file; `damaged` frames could not be understood, `skipped` ones were too large to hold."""

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
        progress = _progress(before, os.fstat(opened.fileno()), file)
        builder = RowBuilder(settings, file)
        reader = EventReader(builder.add)
        damaged = 0

        def take(event: bytes, end: int) -> None:
            nonlocal damaged
            builder.offset = end
            try:
                reader.read(event)
            except WireError:
                damaged += 1

        frames = read_frames(opened, progress.offset, settings.bytes_at_once, take)
    progress = _joined(progress, builder, others)
    rows = builder.rows(progress.session, progress.ordinal)
    last_step = max((step for step in (progress.last_step, builder.last_step) if step is not None), default=None)
    after = msgspec.structs.replace(progress, offset=frames.end, last_step=last_step, problem=frames.problem)
    return Piece(list(rows), after, frames.end - progress.offset, frames.has_more, damaged, frames.skipped)


def _progress(before: Progress | None, status: os.stat_result, file: EventFile) -> Progress:
    """Where to go on; a file that was replaced or cut is a new one."""
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
