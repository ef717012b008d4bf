"""`lens` in a child that is forked from a process which has imported it: a third of the CPU time of an interpreter.

The child has the arguments, variables and folder that it is given, files or a pipe as its output, its own signals and
exit code. Only what an interpreter reads at its start (PYTHONPATH and the like) is that of the test: where that
matters, and where the command itself is what is tested, `python -m lens_core.cli` is started.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")


class ForkedLens:
    """A running `lens`, with the part of `subprocess.Popen` that tests use; its output goes to a pipe and a file."""

    def __init__(self, arguments: Sequence[str], stderr: Path, environ: Mapping[str, str] | None = None) -> None:
        _run_server()
        reader, writer = _CONTEXT.Pipe(duplex=False)
        variables = dict(os.environ if environ is None else environ)
        given = (["lens", *arguments], variables, os.getcwd(), writer, str(stderr))
        self._process = _CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()
        writer.close()
        self.stdout = os.fdopen(os.dup(reader.fileno()), "rb")
        reader.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """The exit code, once it has ended; raises TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("lens", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


def _run_server() -> None:
    """Have the server running; it finds what it imports first from the folder of the checkout."""
    folder = os.getcwd()
    os.chdir(Path(__file__).parents[1])
    try:
        _CONTEXT.set_forkserver_preload(["tests.forked_imports"])
        forkserver.ensure_running()
    finally:
        os.chdir(folder)


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


def _run(arguments: list[str], environ: dict[str, str], folder: str, stdout: Connection, stderr: str) -> None:
    """Run the child."""
    os.dup2(stdout.fileno(), 1)
    stdout.close()
    file = os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, 2)
    os.close(file)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.argv = arguments
    from lens_core.cli import main

    main()
