"""Two ranks on one machine: started together, ended together, averaging their gradients over a socket."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

WORLD_SIZE = 2
_FD = "LENS_DEMO_PEER"


class Peer:
    """The other rank."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rwb")

    @classmethod
    def from_environment(cls) -> Peer:
        """The socket that the launcher has left."""
        return cls(socket.socket(fileno=int(os.environ[_FD])))

    def average(self, numbers: Sequence[float]) -> list[float]:
        """The mean of both ranks' numbers; waits for the other. Raises ConnectionError when it is gone."""
        layout = f"<{len(numbers)}d"
        self._file.write(struct.pack(layout, *numbers))
        self._file.flush()
        data = self._file.read(struct.calcsize(layout))
        if len(data) < struct.calcsize(layout):
            raise ConnectionError("the other rank has ended")
        return [(mine + other) / 2 for mine, other in zip(numbers, struct.unpack(layout, data), strict=True)]


def launch(arguments: Sequence[str]) -> int:
    """Run this script once per rank, as a launcher does; the worst exit code."""
    sys.stdout.write(f"INFO: [default] {WORLD_SIZE} ranks on one machine\n")
    sys.stdout.flush()
    sockets = socket.socketpair()
    module = ["-m", "lens_core.demo.train", *arguments]
    ranks = [start_rank(rank, sockets[rank], module) for rank in range(WORLD_SIZE)]
    for one in sockets:
        one.close()

    def stop(number: int, frame: FrameType | None) -> None:
        for process in ranks:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    codes = [process.wait() for process in ranks]
    if not any(codes):
        # As PyTorch's launcher says it: without a word of its end a run that has ended looks like one that stalled.
        sys.stdout.write("INFO: [default] worker group successfully finished.\n")
        sys.stdout.flush()
    return max(abs(code) for code in codes)


def start_rank(rank: int, connection: socket.socket, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start one rank with these arguments of Python; it has its end of the connection to the other."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "NODE_RANK": 0, "WORLD_SIZE": WORLD_SIZE, _FD: connection.fileno()}
    environment = {**os.environ, **{name: str(number) for name, number in numbers.items()}}
    return subprocess.Popen([sys.executable, *arguments], env=environment, pass_fds=[connection.fileno()])
