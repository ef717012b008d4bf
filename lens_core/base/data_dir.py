"""The data directory: its lock, the address of the daemon that runs on it, state files."""

from __future__ import annotations

import fcntl
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from .errors import LensError

AnyState = TypeVar("AnyState", bound=msgspec.Struct)


def load_state(path: Path, kind: type[AnyState]) -> AnyState:
    """Return the stored state, or a new one of its kind. Raises msgspec.DecodeError for a file in another format."""
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else kind()


def save_state(path: Path, state: msgspec.Struct) -> None:
    """Store it for good; returns when it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(state))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def give_to_owner_of(folder: Path, descriptor: int) -> None:
    """Let the daemon's user have a file that a command of root made in its folder."""
    owner = folder.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def other_owner(folder: Path) -> str:
    """The user whose data directory this is, where root runs a command on it; empty otherwise."""
    if os.geteuid() != 0 or not folder.exists() or folder.stat().st_uid == 0:
        return ""
    return _user_name(folder.stat().st_uid)


class DaemonAddress(msgspec.Struct, frozen=True):
    """The entry that a running daemon leaves in its data directory for the command line."""

    pid: int
    url: str


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """$LENS_DATA_DIR, else /var/lib/lens for root, else $XDG_DATA_HOME/lens, else ~/.local/share/lens."""
    if environ.get("LENS_DATA_DIR"):
        return Path(environ["LENS_DATA_DIR"])
    if os.geteuid() == 0:
        return Path("/var/lib/lens")
    return Path(environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "lens"


def _whose(error: OSError, directory: Path) -> str:
    """Name the owner of a directory, or of its nearest existing parent, where that is the cause of an error."""
    if not isinstance(error, PermissionError):
        return ""
    nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return (
        f" ({nearest} belongs to {_user_name(nearest.stat().st_uid)}, and this process is {_user_name(os.geteuid())}'s)"
    )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # an arbitrary user of a container
        return f"user {uid}"


class DataDirLock:
    """Held by the one daemon of a data directory, and let go by the kernel when it dies, however it dies."""

    def __init__(self, data_dir: Path) -> None:
        self._dir = data_dir
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the directory. Raises LensError that names the daemon which has it."""
        try:
            self._dir.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._dir / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LensError(
                f"the data directory {self._dir} cannot be used: {error.strerror}{_whose(error, self._dir)};"
                " choose another with --data-dir, or with LENS_DATA_DIR"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            address = read_address(self._dir)
            where = f" (pid {address.pid}, listening on {address.url})" if address else ""
            raise LensError(
                f"another daemon{where} is using the data directory {self._dir}; stop it, or give this one a "
                "directory of its own with --data-dir"
            ) from None
        self._descriptor = descriptor

    def publish(self, url: str) -> None:
        """Tell the command line where this daemon listens."""
        temporary = self._dir / "daemon.json.new"
        temporary.write_bytes(msgspec.json.encode(DaemonAddress(os.getpid(), url)))
        temporary.replace(self._dir / "daemon.json")

    def release(self) -> None:
        """Let the directory go."""
        if self._descriptor is not None:
            (self._dir / "daemon.json").unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None


def read_address(data_dir: Path) -> DaemonAddress | None:
    """Return the address of the daemon of a data directory; None when there is no entry."""
    try:
        return msgspec.json.decode((data_dir / "daemon.json").read_bytes(), type=DaemonAddress)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def running_address(data_dir: Path) -> DaemonAddress | None:
    """Like `read_address`, but only while a daemon holds the directory: a killed one leaves its file behind."""
    address = read_address(data_dir)
    if address is None:
        return None
    try:
        descriptor = os.open(data_dir / "daemon.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return address
    finally:
        os.close(descriptor)
    return None
