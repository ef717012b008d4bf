"""Ports for programs that cannot let the kernel choose one, or that cannot say which one they got.

A port that the kernel chose and that was closed again may be anybody's before its program listens: the kernel gives it
to the next connection that goes out. Those here lie below the kernel's range, and no two processes of tests on a
machine have the same one at a time.
"""

from __future__ import annotations

import atexit
import random
import socket
from pathlib import Path

# Browsers refuse some ports below.
_LOWEST = 12_000
_KERNELS_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_rng = random.SystemRandom()
# Names of sockets that are no files: each belongs to one process, and is nobody's once that has ended.
_claims: list[socket.socket] = []


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port of loopback that nobody has, and that is given to nobody else while this process lives."""
    while True:
        port = _rng.randrange(_LOWEST, int(_KERNELS_RANGE.read_text().split()[0]))
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0lens-test-port-{port}")
            with socket.socket(type=kind) as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:  # somebody has it
            claim.close()
            continue
        _claims.append(claim)
        return port


def free_ports(count: int) -> list[int]:
    """Several free ports, each another one."""
    return [free_port() for _ in range(count)]


@atexit.register
def _let_go() -> None:
    for claim in _claims:
        claim.close()
