"""The collector: finds logs, reads the next piece, remembers when it is stored."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec

from lens_core import Collector, LensError, Record
from lens_core.remembering import load_state, save_state

from .logs import Piece, Progress, read_piece
from .settings import WandbOfflineSettings

_OFFLINE = "offline-run-"


class State(msgspec.Struct):
    """What must outlast a restart: progress by path."""

    files: dict[str, Progress] = {}


class _Read(NamedTuple):
    records: list[Record]
    state: State
    more: bool


class WandbOffline(Collector):
    """Rows, starts and ends of runs out of wandb's own logs, also while they are written and after a crash."""

    name = "wandb_offline"
    Settings = WandbOfflineSettings
    interval_seconds: ClassVar[float] = 15.0

    settings: WandbOfflineSettings
    _state: State

    @classmethod
    def settings_from(cls, environ: Mapping[str, str]) -> WandbOfflineSettings | None:
        """Usable with WANDB_DIR, the directory that wandb itself writes to."""
        folder = environ.get("WANDB_DIR", "")
        return WandbOfflineSettings(paths=[folder]) if folder else None

    async def start(self) -> None:
        """Load how far every log was read."""
        self._state = await asyncio.to_thread(load_state, self._path, State)
        self._next: State | None = None
        self._said: set[tuple[str, str]] = set()

    async def collect(self) -> Sequence[Record]:
        """The next piece; `more` says whether there is another. Raises LensError when there is no directory."""
        read = await asyncio.to_thread(self._read, State(dict(self._state.files)))
        self._next = read.state
        self.more = read.more
        return read.records

    async def stored(self) -> None:
        """Go on behind what was read."""
        if self._next is not None and self._next != self._state:
            self._state = self._next
            await asyncio.to_thread(save_state, self._path, self._state)
        self._next = None

    @property
    def _path(self) -> Path:
        return self.context.data_dir / "logs.json"

    def _read(self, state: State) -> _Read:
        records: list[Record] = []
        left = self.settings.bytes_at_once
        paths = self._find()
        present = set(map(str, paths))
        state.files = {path: progress for path, progress in state.files.items() if path in present}
        for path in paths:
            while left > 0:
                piece = self._piece(path, state)
                if piece is None:
                    break
                records += piece.records
                left -= piece.size
                state.files[str(path)] = piece.progress
                if not piece.has_more:
                    break
            if left <= 0:
                return _Read(records, state, True)
        return _Read(records, state, False)

    def _piece(self, path: Path, state: State) -> Piece | None:
        before = state.files.get(str(path))
        try:
            piece = read_piece(path, before, self.settings)
        except OSError as error:
            self._say(path, f"it cannot be read: {error.strerror or error}")
            return None
        except ValueError as error:
            self._say(path, str(error))
            return None
        if piece is not None and piece.progress.damaged > (before.damaged if before else 0):
            self._say(path, "parts of it are damaged and were left out")
        return piece

    def _say(self, path: Path, problem: str) -> None:
        if (str(path), problem) not in self._said:
            self._said.add((str(path), problem))
            self.context.logger.warning("A log of wandb has a problem. file=%s problem=%s", path, problem)

    def _find(self) -> list[Path]:
        roots = [Path(path).expanduser() for path in self.settings.paths]
        there = [root for root in roots if root.is_dir()]
        if not there:
            raise LensError(f"there is no directory {', '.join(map(str, roots))}")
        found = sorted({path for root in there for path in self._logs(root)}, key=lambda path: (path.parent.name, path))
        if len(found) > self.settings.max_files:
            self.context.logger.warning("There are more logs than are followed. logs=%d", len(found))
        return found[-self.settings.max_files :]

    def _logs(self, root: Path) -> Iterator[Path]:
        for folder, folders, names in os.walk(root):
            # Files, media and wandb's own logs are in folders of their own below a run's.
            folders[:] = [name for name in folders if name not in ("files", "logs", "tmp")]
            offline = Path(folder).name.startswith(_OFFLINE)
            if offline or self.settings.online:
                for name in names:
                    if name.startswith("run-") and name.endswith(".wandb"):
                        yield Path(folder, name)
