"""Collectors that follow files which grow: piece by piece, after what is stored, resumed where they stopped."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec

from ..base.data_dir import load_state, save_state
from ..base.errors import LensError
from ..model.records import Record
from .components import Collector


class Followed(msgspec.Struct):
    """The state that must outlast a restart: progress by path, of a type that a subclass names."""

    files: dict[str, Any] = {}


class Piece(Protocol):
    """A piece read from a file: its records, how far it is now, how many bytes that were, whether there is more."""

    @property
    def records(self) -> Sequence[Record]: ...

    @property
    def progress(self) -> Any: ...

    @property
    def size(self) -> int: ...

    @property
    def has_more(self) -> bool: ...


class Following(Collector):
    """Finds files below `settings.paths` and reads them on, at most about `settings.bytes_at_once` in one call.

    `State` is what is kept, in the file `state_file` of the component's folder. A subclass writes `find_files` and
    `read_next`, which run in a thread.
    """

    State: ClassVar[type[Followed]] = Followed
    state_file: ClassVar[str] = "files.json"

    async def start(self) -> None:
        """Load how far every file was read."""
        self._state = await asyncio.to_thread(load_state, self._path, self.State)
        self._next: Followed | None = None

    async def collect(self) -> Sequence[Record]:
        """The next piece; `more` says whether there is another. Raises LensError when there is no directory."""
        reading = self.State(files=dict(self._state.files))
        records, self.more = await asyncio.to_thread(self._read_files, reading)
        self._next = reading
        return records

    async def stored(self) -> None:
        """Go on after what was read."""
        if self._next is not None and self._next != self._state:
            self._state = self._next
            await asyncio.to_thread(save_state, self._path, self._state)
        self._next = None

    @abstractmethod
    def find_files(self, roots: Sequence[Path]) -> Mapping[str, Any]:
        """The files below directories that exist, by path, in the order in which they are read."""

    @abstractmethod
    def read_next(self, path: str, files: Mapping[str, Any], progress: Mapping[str, Any]) -> Piece | None:
        """The next piece of one of the files, given how far all of them are; None when it has nothing now."""

    @property
    def _path(self) -> Path:
        return self.context.data_dir / self.state_file

    def _read_files(self, state: Followed) -> tuple[list[Record], bool]:
        """Read on in all files, until there are as many bytes as one call may have; whether it ended for that."""
        records: list[Record] = []
        left: int = self.settings.bytes_at_once
        files = self.find_files(self._roots())
        state.files = {path: progress for path, progress in state.files.items() if path in files}
        for path in files:
            while left > 0:
                piece = self.read_next(path, files, state.files)
                if piece is None:
                    break
                records += piece.records
                left -= piece.size
                state.files[path] = piece.progress
                if not piece.has_more:
                    break
            if left <= 0:
                return records, True
        return records, False

    def _roots(self) -> list[Path]:
        roots = [Path(path).expanduser() for path in self.settings.paths]
        there = [root for root in roots if root.is_dir()]
        if not there:
            raise LensError(f"there is no directory {', '.join(map(str, roots))}")
        return there


__all__ = ["Followed", "Following", "Piece"]
