"""The process that forks `lens` (tests/forked.py): it has imported the command, the daemon and all plugins.

`python -m tests.forked_server SOCKET AUTHORITIES` takes requests at that address, each with three files as the child's
input, output and messages, and answers with the child's process id and later with its exit code. It ends with its own
input, and kills a child whose caller has gone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tests.trust import trust

_LENGTH_BYTES = 4


class Request:
    """The files, arguments, variables and folder of a child."""

    def __init__(self, connection: socket.socket) -> None:
        head, files, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 3)
        self.files = files
        with connection.makefile("rb") as stream:
            body = stream.read(int.from_bytes(head, "big"))
        self.arguments, self.variables, self.folder = json.loads(body)

    def close(self) -> None:
        """Leave its files to the child."""
        for file in self.files:
            os.close(file)

    def become(self) -> None:
        """Make this process one that was started with it."""
        for number, file in enumerate(self.files):
            os.dup2(file, number)
        self.close()
        os.environ.clear()
        os.environ.update(self.variables)
        os.chdir(self.folder)
        sys.argv = ["lens", *self.arguments]
        if self.variables.get("PYTHONUNBUFFERED"):
            for output in (sys.stdout, sys.stderr):
                output.reconfigure(write_through=True)  # type: ignore[union-attr]
        if self.variables.get("PYTHONFAULTHANDLER"):
            faulthandler.enable()


class Server:
    """Forks children and waits for them."""

    def __init__(self, address: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        # Who waits for the address to be there may connect at once.
        unready = address.with_name("unready")
        self._listener.bind(str(unready))
        self._listener.listen(64)
        unready.rename(address)
        self._selector = selectors.DefaultSelector()
        self._callers: dict[int, socket.socket] = {}
        self._ended, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Ctrl-C is for the tests, which end this process by its input.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for what in (0, self._listener, self._ended):
            self._selector.register(what, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """Serve until the input ends: None. In a child: what it was asked for."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    self._kill(*self._callers)
                    return None
                if key.fileobj == self._ended:
                    os.read(self._ended, 4096)
                    self._tell_codes()
                elif key.fileobj is self._listener:
                    request = self._fork()
                    if request is not None:
                        return request
                else:
                    self._kill(key.data)

    def _fork(self) -> Request | None:
        """Fork for the next caller; what it asks for in the child, None in this process."""
        connection, _ = self._listener.accept()
        try:
            request = Request(connection)
        except (OSError, ValueError):  # the caller was killed before it had asked
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            self._leave(connection)
            return request
        request.close()
        self._callers[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ, pid)
        with contextlib.suppress(OSError):  # it is gone, and its child is killed next
            connection.sendall(f"{pid}\n".encode())
        return None

    def _leave(self, connection: socket.socket) -> None:
        """Have nothing of the server any more, in a child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for one in (self._listener, connection, *self._callers.values()):
            one.close()

    def _tell_codes(self) -> None:
        """Tell the callers of children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection = self._callers.pop(pid)
            with contextlib.suppress(KeyError):  # it was killed, because its caller had gone
                self._selector.unregister(connection)
            with connection, contextlib.suppress(OSError):  # it is gone
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())

    def _kill(self, *pids: int) -> None:
        for pid in pids:
            if pid not in self._callers:
                continue  # it ended in the moment in which its caller went
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(KeyError):  # it was killed before, and its code is told soon
                self._selector.unregister(self._callers[pid])


def import_everything() -> None:
    """Import what any command imports, and work out what a process works out once.

    Those are the types of settings, and whether patterns of log lines are bounded.
    """
    import uvloop  # noqa: F401
    from uvicorn.protocols.http import httptools_impl  # noqa: F401

    import lens_core.cli
    import lens_core.daemon.daemon
    from lens_core.config.loading import load_config
    from lens_core.detection.detectors import make_detectors
    from lens_core.detection.log_lines.engine import LineEngine
    from lens_core.plugin_host.host import PluginHost

    announced = entry_points(group="lens")
    commands = [found.name for found in pkgutil.iter_modules(lens_core.cli.__path__, "lens_core.cli.")]
    for name in (*commands, *(found.module for found in announced)):
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # whoever needs it says so
                importlib.import_module(name)
    LineEngine(make_detectors(load_config(None, PluginHost.load(announced, disabled=())).detectors))
    # Children look through none of these objects, and so share their memory.
    gc.collect()
    gc.freeze()


def main() -> Any:
    """Serve; in a child, `lens`."""
    trust(sys.argv[2])
    import_everything()
    request = Server(Path(sys.argv[1])).serve()
    if request is not None:
        request.become()
        from lens_core.cli import main

        main()


if __name__ == "__main__":
    main()
