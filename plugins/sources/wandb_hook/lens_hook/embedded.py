"""Embedded mode: a private daemon as a child process, with a configuration of the user's, reached over loopback."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

from . import say

_HANDED_DOWN = "LENS_EMBEDDED"  # "PID URL", for spawned children of this process
_NOT_FOR_THE_DAEMON = ("LENS_CONFIG", "PRIMUS_LENS_API_BASE_URL", "PRIMUS_LENS_API_TOKEN", _HANDED_DOWN)
_LOG = "daemon.log"


class EmbeddedDaemon:
    """Starts the daemon at once and learns its address later; neither blocks nor raises."""

    def __init__(self, config: str) -> None:
        self.url = _handed_down()
        self.failed = False
        self._config = os.path.abspath(config)
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._announced = b""
        self._folder = _folder(self._config)
        self._attempts = 0
        if self.url is None:
            self._start_process()

    def _start_process(self) -> None:
        self._attempts += 1
        command = [sys.executable, "-m", "lens_core.cli", "up", "--config", self._config]
        command += ["--listen", "127.0.0.1:0", "--data-dir", self._folder]
        command += ["--announce-json", "--exit-with-parent", str(self._owner)]
        environment = {name: text for name, text in os.environ.items() if name not in _NOT_FOR_THE_DAEMON}
        environment["PRIMUS_LENS_WANDB_HOOK"] = "false"
        try:
            os.makedirs(self._folder, exist_ok=True)
            with open(os.path.join(self._folder, _LOG), "wb") as log:
                self._process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the training; the daemon still has to deliver
                )
        except OSError as error:
            self._give_up(f"{error.strerror}: {error.filename}")

    def _give_up(self, why: str) -> None:
        self.failed = True
        say.once("embedded", f"the embedded daemon does not run, so nothing is reported: {why}")

    def poll(self, seconds: float = 0.0) -> str | None:
        """The daemon's base URL once it listens; waits `seconds` at most."""
        if self.url is None and self._owner != os.getpid():
            self.url = _handed_down()  # a forked child must not take the announcement from its parent
            return self.url
        deadline = time.monotonic() + seconds
        while self.url is None and not self.failed and self._process is not None:
            if not self._read_announcement(self._process, deadline - time.monotonic()):
                break
        return self.url

    def _read_announcement(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Read what the daemon printed; False when there is nothing yet."""
        if process.stdout is None or not select.select([process.stdout], [], [], max(0.0, seconds))[0]:
            return False
        data = os.read(process.stdout.fileno(), 65536)
        self._announced += data
        line, newline, _ = self._announced.partition(b"\n")
        if newline:
            self._parse_address(line)
        elif not data:
            self._ended_early(process)
        return True

    def _parse_address(self, line: bytes) -> None:
        try:
            self.url = str(json.loads(line)["listening"]).rstrip("/") + "/api/v1"
        except (ValueError, KeyError, TypeError):
            self._give_up("it printed something that is not its address")
            return
        os.environ[_HANDED_DOWN] = f"{self._owner} {self.url}"

    def _ended_early(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # its output is closed, so it is as good as gone
            process.wait(timeout=1.0)
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        if self._attempts == 1 and process.returncode != 78:  # not a bad configuration: perhaps the folder is in use
            self._folder = tempfile.mkdtemp(prefix="lens-embedded-")
            self._start_process()
            return
        self._give_up(f"it ended with code {process.returncode}: {_last_line(os.path.join(self._folder, _LOG))}")

    def stop(self) -> None:
        """Ask the daemon to deliver and end; it does so on its own time."""
        process = self._process
        if process is None or self._owner != os.getpid():
            return
        os.environ.pop(_HANDED_DOWN, None)
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.kill(process.pid, signal.SIGTERM)
        if process.stdout is not None:
            process.stdout.close()
        if process.poll() is None:
            process.returncode = 0  # nobody waits for it: it outlives us by the time that its sinks need


def _handed_down() -> str | None:
    """The address of the daemon of a parent process that is still there."""
    pid, _, url = os.environ.get(_HANDED_DOWN, "").partition(" ")
    if not url or not pid.isdigit():
        return None
    try:
        os.kill(int(pid), 0)
    except OSError:
        return None
    return url


def spool_folder(config: str) -> str:
    """Return the folder of rows that came too late for the daemon of this configuration."""
    return os.path.join(_folder(os.path.abspath(config)), "hook-spool")


def _folder(config: str) -> str:
    """A data directory that the next run with this configuration finds again, what is undelivered included."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    name = hashlib.sha256(config.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return os.path.join(home, "lens", f"embedded-{name}-{os.environ.get('RANK', '0') or '0'}")


def _last_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 2000))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return "(no log)"
    return lines[-1][:300] if lines else "(it said nothing)"
