"""The collector: finds files, reads the next piece, remembers when it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from lens_core import Collector, LensError, Record
from lens_core.remembering import load_state, save_state

from .files import EventFile, Progress, State, event_files
from .pieces import Piece, is_read, read_piece
from .settings import TensorBoardSettings


class _Read(NamedTuple):
    """What a call read: rows, and the state once they are stored."""

    rows: list[Record]
    state: State
    more: bool


class TensorBoard(Collector):
    """Scalars of TensorBoard's event files as training rows, followed while they grow, resumed where it stopped."""

    name = "tensorboard"
    Settings = TensorBoardSettings
    interval_seconds: ClassVar[float] = 5.0

    settings: TensorBoardSettings
    _state: State

    @classmethod
    def settings_from(cls, environ: Mapping[str, str]) -> TensorBoardSettings | None:
        """Usable with LENS_TENSORBOARD_DIRS, directories with colons between them."""
        paths = [path for path in environ.get("LENS_TENSORBOARD_DIRS", "").split(":") if path]
        return TensorBoardSettings(paths=paths) if paths else None

    async def start(self) -> None:
        """Load how far every file was read."""
        self._state = await asyncio.to_thread(load_state, self._path, State)
        self._next: State | None = None

    async def collect(self) -> Sequence[Record]:
        """The next piece; `more` says whether there is another. Raises LensError when there is no directory."""
        read = await asyncio.to_thread(self._read, State(files=dict(self._state.files)))
        self._next = read.state
        self.more = read.more
        return read.rows

    async def stored(self) -> None:
        """Go on behind what was read."""
        if self._next is not None and self._next != self._state:
            self._state = self._next
            await asyncio.to_thread(save_state, self._path, self._state)
        self._next = None

    @property
    def _path(self) -> Path:
        return self.context.data_dir / "files.json"

    def _read(self, state: State) -> _Read:
        """Read on in all files, until there are as many bytes as one call may have."""
        rows: list[Record] = []
        left = self.settings.bytes_at_once
        files = self._find()
        present = {file.path for file in files}
        state.files = {path: progress for path, progress in state.files.items() if path in present}
        for file in files:
            while left > 0:
                piece = self._piece(file, files, state)
                if piece is None:
                    break
                rows += piece.rows
                left -= piece.size
                if not piece.has_more:
                    break
            if left <= 0:
                return _Read(rows, state, True)
        return _Read(rows, state, False)

    def _piece(self, file: EventFile, files: Sequence[EventFile], state: State) -> Piece | None:
        before = state.files.get(file.path)
        try:
            if is_read(file, state.files):
                return None
            earlier = [
                (other, state.files[other.path])
                for other in files
                if other.run == file.run and other.order < file.order and other.path in state.files
            ]
            piece = read_piece(file, before, earlier, self.settings)
        except OSError as error:
            self._say(file, before, f"it cannot be read: {error.strerror or error}")
            return None
        self._say(file, before, piece.progress.problem)
        if piece.damaged:
            self.context.logger.warning("Events could not be read. file=%s events=%d", file.path, piece.damaged)
        if piece.skipped:
            self.context.logger.info("Large events were stepped over. file=%s events=%d", file.path, piece.skipped)
        state.files[file.path] = piece.progress
        return piece

    def _say(self, file: EventFile, before: Progress | None, problem: str) -> None:
        """A problem once, until it is another; what stands behind it is read if it mends itself."""
        if problem and (before is None or before.problem != problem):
            self.context.logger.warning("An event file has a problem. file=%s problem=%s", file.path, problem)

    def _find(self) -> list[EventFile]:
        roots = [Path(path).expanduser() for path in self.settings.paths]
        there = [root for root in roots if root.is_dir()]
        if not there:
            raise LensError(f"there is no directory {', '.join(map(str, roots))}")
        files = [file for root in there for file in event_files(root, self.settings.max_files)]
        if len(files) >= self.settings.max_files:
            self.context.logger.warning("There are more event files than are followed. max_files=%d", len(files))
        return files
