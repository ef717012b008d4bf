"""`lens` in a child that is forked from a process which has imported it: a sixth of the CPU time of an interpreter.

The child has the arguments, variables and folder that it is given, files or a pipe as its output, its own signals and
exit code. Only what an interpreter reads at its start (PYTHONPATH and the like) is that of the test: where that
matters, and where the command itself is what is tested, `python -m lens_core.cli` is started.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import certifi

_HERE = Path(__file__).parent


class ForkedLens:
    """A running `lens`, with the part of `subprocess.Popen` that tests use; its output goes to a pipe and a file."""

    def __init__(self, arguments: Sequence[str], stderr: Path, environ: Mapping[str, str] | None = None) -> None:
        variables = dict(os.environ if environ is None else environ)
        body = json.dumps([[*arguments], variables, os.getcwd()]).encode()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(_server()))
        reader, writer = os.pipe()
        errors = os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            socket.send_fds(self._connection, [len(body).to_bytes(4, "big")], [nothing, writer, errors])
            self._connection.sendall(body)
        finally:
            for file in (nothing, writer, errors):
                os.close(file)
        self.stdout = os.fdopen(reader, "rb")
        self._answers = self._connection.makefile("rb", buffering=0)
        self._code: int | None = None
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float) -> int:
        """The exit code, once it has ended; raises TimeoutExpired."""
        if self._code is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("lens", timeout)
            self._code = int(self._answers.readline())
            self._answers.close()
            self._connection.close()
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended in this moment
                os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


def run_lens(
    *arguments: str, environ: Mapping[str, str] | None = None, timeout: float = 240.0
) -> subprocess.CompletedProcess[str]:
    """Run `lens` with these arguments to its end."""
    with tempfile.NamedTemporaryFile() as said:
        lens = ForkedLens(arguments, Path(said.name), environ)
        with lens.stdout:
            out = lens.stdout.read().decode()
        code = lens.wait(timeout)
        return subprocess.CompletedProcess(["lens", *arguments], code, out, said.read().decode())


def forked_command() -> list[str]:
    """A command that is `lens`, for shells and for whoever starts programs; its arguments follow."""
    return [sys.executable, "-IS", str(_HERE / "forked_client.py"), str(_server())]


@functools.cache
def _server() -> Path:
    """The address of the server of this process, which is started with the first use."""
    address = Path(tempfile.mkdtemp(prefix="lens-forked-"), "socket")
    command = [sys.executable, "-m", "tests.forked_server", str(address), certifi.where()]
    server = subprocess.Popen(command, cwd=_HERE.parent, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    atexit.register(_end, server, address)
    while not address.exists():
        assert server.poll() is None, "the process that forks lens could not start"
        time.sleep(0.01)
    return address


def _end(server: subprocess.Popen[bytes], address: Path) -> None:
    assert server.stdin is not None
    server.stdin.close()
    server.wait()
    address.unlink(missing_ok=True)
    address.parent.rmdir()
