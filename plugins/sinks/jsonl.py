"""Records as JSON lines in a file: for looking at, for shipping elsewhere, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from lens_core import Answer, Batch, Delivered, Position, Record, Sink, hookimpl
from lens_core.plugin_api.encoding import RECORD_KINDS

# Each start of a daemon brings a spool that was never seen; the oldest have nothing left to deliver.
KEPT_POSITIONS = 200


class JsonlSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the jsonl sink.

    `path`: the file; its folder is made. `rotate_bytes`: a file that grew past this is renamed to `PATH.1`, the
    one before it to `PATH.2` and so on, `keep_files` of them; 0 means never. `sync`: wait for the disk.
    """

    path: str
    rotate_bytes: int = 0
    keep_files: int = 5
    sync: bool = True

    def __post_init__(self) -> None:
        path = Path(self.path)
        nearest = next(found for found in (path.absolute(), *path.absolute().parents) if found.exists())
        if not self.path or path.is_dir():
            raise ValueError(f"path: {self.path or 'nothing'} is a directory; name a file, which need not exist")
        if nearest != path.absolute() and not nearest.is_dir():
            raise ValueError(f"path: {nearest} is no directory, so no file can be made in it; correct the path")


class _Mark(msgspec.Struct, frozen=True):
    """The mark beside the file: its size after the last whole batch, and how far each spool is in it."""

    size: int | None
    spools: dict[str, Position]


class Jsonl(Sink):
    """Append every record to a file, one JSON object a line; a crash leaves nothing half and nothing twice."""

    name = "jsonl"
    also_called = ("file", "console", "stdout", "debug", "logging")
    Settings = JsonlSettings
    accepts = tuple(RECORD_KINDS.values())

    settings: JsonlSettings
    _file: BinaryIO
    _mark: _Mark
    _order: asyncio.Lock

    @classmethod
    def is_exclusive(cls, settings: JsonlSettings) -> bool:
        """The file has one writer."""
        return True

    @classmethod
    def occupies(cls, settings: JsonlSettings) -> Sequence[str]:
        """The file, wherever links lead."""
        return [os.path.realpath(settings.path)]

    async def start(self) -> None:
        """Open the file and cut off what an unfinished write left behind."""
        self._order = asyncio.Lock()
        await asyncio.to_thread(self._open_file)

    async def stop(self) -> None:
        """Close the file."""
        if hasattr(self, "_file"):
            self._file.close()

    async def check(self) -> None:
        """Try whether the file can be written."""
        path = Path(self.settings.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass

    async def send(self, batch: Batch) -> Answer:
        """Append the batch; several pipelines may share the file."""
        async with self._order:
            await asyncio.to_thread(self._append_batch, batch)
        return Delivered()

    async def position(self, spool_id: str) -> Position | None:
        """Return the position in a spool; it is written after every batch, beside the data."""
        return self._mark.spools.get(spool_id)

    def _open_file(self) -> None:
        path = Path(self.settings.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._mark = self._read_mark()
        # Bytes after the mark belong to a batch that was not acknowledged: it comes again.
        if self._mark.size is not None and self._mark.size <= path.stat().st_size:
            self._file.truncate(self._mark.size)
            self._file.seek(0, os.SEEK_END)
        elif self._mark.size is not None:
            lost = self._mark.size - path.stat().st_size
            self.context.logger.warning(
                "%s was deleted or cut since it was last written to. missing_bytes=%d", path, lost
            )
            self._write_mark(self._mark.spools)

    def _append_batch(self, batch: Batch) -> None:
        done = self._mark.spools.get(batch.spool_id)
        if done is not None and batch.end <= done:
            return  # it was written, but whoever asked had stopped waiting for the answer
        self._reopen_if_gone()
        self._rotate()
        before = self._file.tell()
        try:
            self._file.write(encode_lines(batch.records))
            self._sync(self._file)
            others = [place for place in self._mark.spools.items() if place[0] != batch.spool_id]
            self._write_mark(dict([*others[-KEPT_POSITIONS:], (batch.spool_id, batch.end)]))
        except OSError:
            self._truncate_file(before)  # a full disk leaves half a batch, and the whole batch comes again
            raise

    def _truncate_file(self, size: int) -> None:
        # Reopened, because the buffer of the file may still hold what could not be written.
        with contextlib.suppress(OSError):
            self._file.close()
        path = Path(self.settings.path)
        self._file = path.open("ab")
        self._file.truncate(size)
        self._file.seek(0, os.SEEK_END)

    def _reopen_if_gone(self) -> None:
        """Open the file anew where somebody has deleted or moved it: what is written to the old one nobody finds."""
        path = Path(self.settings.path)
        opened = os.fstat(self._file.fileno())
        try:
            there = path.stat()
        except FileNotFoundError:
            there = None
        if there is not None and (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino):
            return
        what = "deleted" if opened.st_nlink == 0 else "moved"
        self.context.logger.warning(
            "%s was %s while it was written to; reopened. bytes_in_the_old_file=%d", path, what, opened.st_size
        )
        self._file.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._write_mark(self._mark.spools)

    def _rotate(self) -> None:
        limit = self.settings.rotate_bytes
        if not limit or self._file.tell() < limit:
            return
        self._file.close()
        path = Path(self.settings.path)
        for number in range(self.settings.keep_files - 1, 0, -1):
            older = path.with_name(f"{path.name}.{number}")
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number + 1}"))
        path.replace(path.with_name(f"{path.name}.1"))
        self._file = path.open("ab")
        self._write_mark(self._mark.spools)

    @property
    def _mark_path(self) -> Path:
        path = Path(self.settings.path)
        return path.with_name(f".{path.name}.position")

    def _read_mark(self) -> _Mark:
        try:
            return msgspec.json.decode(self._mark_path.read_bytes(), type=_Mark)
        except FileNotFoundError:
            return _Mark(None, {})

    def _write_mark(self, spools: dict[str, Position]) -> None:
        self._mark = _Mark(self._file.tell(), spools)
        temporary = self._mark_path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(self._mark))
            self._sync(file)
        temporary.replace(self._mark_path)

    def _sync(self, file: BinaryIO) -> None:
        file.flush()
        if self.settings.sync:
            os.fsync(file.fileno())


_encoder = msgspec.json.Encoder()


def encode_lines(records: Sequence[Record]) -> bytes:
    """Each record as one line of JSON; values that JSON cannot hold are the texts NaN, Infinity and -Infinity."""
    lines = _encoder.encode_lines(records)
    # The encoder makes null of such values: where there is no null, none has to be looked for.
    return b"".join(map(_encode_line, records)) if b"null" in lines else lines


def _encode_line(record: Record) -> bytes:
    line = _encoder.encode(record)
    return (_encoder.encode(_finite(msgspec.to_builtins(record))) if b"null" in line else line) + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [Jsonl]
