"""Ports of tests: nobody else gets them, whether by asking or by chance."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests import ports
from tests.ports import free_port, free_ports


def test_no_port_is_given_twice_and_none_is_the_kernels_to_give() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < port < lowest for port in found)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_somebody_has_is_not_given(kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = free_port()
    with socket.socket(type=kind) as other:
        other.bind(("127.0.0.1", 0))
        free = free_port()
        ports._claims.pop().close()
        offered = iter([other.getsockname()[1], claimed, free])
        monkeypatch.setattr(ports._rng, "randrange", lambda *_: next(offered))
        assert free_port(kind) == free
