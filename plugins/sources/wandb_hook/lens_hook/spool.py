"""The local spool: one append-only JSONL file per process, which outlives the process.

Format: the first line is `{"version": 1, "producer": ..., "origin": {...}}`, every further line one record as on
the wire. Beside `NAME.jsonl`, `NAME.cursor` holds the offset up to which all is delivered (decimal digits). The
owner holds an flock on the file: without one, its process is dead, and whoever takes the lock may send the rest
and remove both files. A torn last line is skipped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import socket
import time

from . import say
from .store import MAX_BODY_BYTES, Batch
from .wire import PRODUCER, Line

try:
    import fcntl
except ImportError:  # no locks on this system: spools are written, and the daemon picks them up by age
    fcntl = None  # type: ignore[assignment]

_ROW = b'{"record":"step_metrics"'
LIMIT_BYTES = 1 << 30
_SHRINK_BYTES = 1 << 20
_CURSOR_DIGITS = 20
_LOOK_FILES = 100


class SpoolFile:
    """One spool file that this process holds the lock of."""

    def __init__(self, path: str, descriptor: int, cursor_descriptor: int) -> None:
        self.path = path
        self._file = descriptor
        self._cursor_file = cursor_descriptor
        self.size = os.fstat(descriptor).st_size
        self.origin, self.start = _read_header(descriptor)
        offset = _read_cursor(cursor_descriptor)
        self.cursor = offset if self.start <= offset <= self.size else self.start
        self._synced = self.start  # everything before is on the medium

    def append_lines(self, data: bytes) -> None:
        """Append whole lines; raises OSError with the file as it was before."""
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            with contextlib.suppress(OSError):  # a torn line stays then, and the reader skips it
                os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)

    def read_lines(self, max_lines: int) -> tuple[list[bytes], int]:
        """The next whole lines after the cursor, and the offset after them."""
        length = MAX_BODY_BYTES
        while True:
            data = os.pread(self._file, length, self.cursor)
            cut = data.rfind(b"\n") + 1
            if cut or len(data) < length:
                break
            length *= 2  # a line longer than the buffer
        lines = data[:cut].split(b"\n")[:-1][:max_lines]
        return lines, self.cursor + sum(len(line) + 1 for line in lines)

    def sync(self) -> None:
        """Bring what is not delivered to the medium, the file's name too; may take long, raises OSError."""
        size = self.size
        if max(self.cursor, self._synced) >= size:
            return
        os.fsync(self._file)
        if self._synced == self.start:
            _sync_directory(os.path.dirname(self.path))
        self._synced = size

    def advance(self, offset: int) -> None:
        """Everything before `offset` is delivered."""
        self.cursor = offset
        if self.cursor >= self.size > self.start + _SHRINK_BYTES:
            os.ftruncate(self._file, self.start)
            self.size = self.cursor = self._synced = self.start
        os.pwrite(self._cursor_file, f"{self.cursor:0{_CURSOR_DIGITS}d}".encode("ascii"), 0)

    def waiting(self) -> bool:
        """Whether undelivered bytes are left."""
        return self.cursor < self.size

    def close(self, *, remove: bool) -> None:
        """Close, and remove the files if nothing in them is needed any more."""
        if remove:
            for path in (_cursor_path(self.path), self.path):
                with contextlib.suppress(OSError):  # a leftover with everything delivered is only untidy
                    os.unlink(path)
        for descriptor in (self._cursor_file, self._file):
            with contextlib.suppress(OSError):  # read-only or vanished file systems: nothing is left to lose
                os.close(descriptor)


def create_spool(directory: str, origin: bytes) -> SpoolFile:
    """A new spool file for this process, locked; raises OSError."""
    os.makedirs(directory, exist_ok=True)
    host = "".join(c if c.isalnum() else "_" for c in socket.gethostname())[:60]
    path = os.path.join(directory, f"lens-hook-{host}-{os.getpid()}-{time.time_ns() // 1000}.jsonl")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        if not _lock(descriptor):
            raise OSError(errno.EAGAIN, "somebody locked the new spool file", path)
        os.write(descriptor, b'{"version":1,"producer":"' + PRODUCER.encode() + b'","origin":' + origin + b"}\n")
        cursor = os.open(_cursor_path(path), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        os.close(descriptor)
        with contextlib.suppress(OSError):  # the first error is the one to report
            os.unlink(path)
        raise
    return SpoolFile(path, descriptor, cursor)


def lock_stale_spools(directory: str, own: str | None) -> list[SpoolFile]:
    """Return the spool files of dead processes, locked by this one; unreadable files are skipped."""
    found: list[SpoolFile] = []
    try:
        names = sorted(name for name in os.listdir(directory) if _is_spool(name))
    except OSError as error:
        say.debug(f"cannot list the spool directory: {error.strerror}")
        return found
    for name in _few(names):
        path = os.path.join(directory, name)
        stale = _adopt(path) if fcntl is not None and path != own else None
        if stale is not None:
            found.append(stale)
        if len(found) >= 20:
            break
    return found


def _is_spool(name: str) -> bool:
    return name.startswith("lens-hook-") and name.endswith(".jsonl")


def _few(names: list[str]) -> list[str]:
    """All of a node's files; of those of thousands of ranks in one directory some, others each time."""
    return names if len(names) <= _LOOK_FILES else random.SystemRandom().sample(names, _LOOK_FILES)


def _adopt(path: str) -> SpoolFile | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if status.st_nlink and status.st_size and _lock(descriptor):
            return SpoolFile(path, descriptor, os.open(_cursor_path(path), os.O_RDWR | os.O_CREAT, 0o600))
    except (OSError, ValueError) as error:
        say.debug(f"spool file {path} is not readable: {error}")
    os.close(descriptor)
    return None


def _lock(descriptor: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks: the spool still works, nobody else will take it for dead on this host.
        return error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
    return True


def _sync_directory(path: str) -> None:
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cursor_path(path: str) -> str:
    return path[: -len(".jsonl")] + ".cursor"


def _read_header(descriptor: int) -> tuple[bytes, int]:
    """The origin in the first line, and where the records begin; raises ValueError for a foreign file."""
    head = os.pread(descriptor, 64 * 1024, 0)
    end = head.find(b"\n")
    if end < 0:
        raise ValueError("no header")
    header = json.loads(head[:end])
    if not isinstance(header, dict) or header.get("version") != 1 or not isinstance(header.get("origin"), dict):
        raise ValueError("unknown header")
    return json.dumps(header["origin"], separators=(",", ":")).encode("ascii"), end + 1


def _read_cursor(descriptor: int) -> int:
    text = os.pread(descriptor, _CURSOR_DIGITS, 0)
    return int(text) if text.isdigit() else 0


def file_batch(file: SpoolFile, max_lines: int, *, check: bool = False) -> Batch:
    """The next lines of a spool file; with `check`, lines that are no JSON (torn ones) are left out."""
    texts, end = file.read_lines(max_lines)
    if not texts:  # only a torn line is left
        end = file.size
    whole = [text for text in texts if not check or _is_json(text)]
    if len(whole) < len(texts):
        say.once("damaged", f"{len(texts) - len(whole)} damaged lines of {file.path} are left out")
    return Batch(file.origin, [Line(text, -1, text.startswith(_ROW)) for text in whole], end)


def _is_json(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
