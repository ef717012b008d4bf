"""The listener takes everybody who knocks at once, and the process may have as many files open as that needs."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from starlette.applications import Starlette

from lens_core.base.errors import LensError
from lens_core.base.process import FEW_FILES, allow_many_files
from lens_core.http.server import HttpServer, bind

KNOCKING = 400


async def _rounds_until_all_are_in() -> int:
    """Rounds of the loop that it takes until all connections are accepted."""
    listener = bind("127.0.0.1:0")
    address = listener.getsockname()
    server = HttpServer(listener, Starlette())
    await server.start()
    outside = [socket.create_connection(address) for _ in range(KNOCKING)]
    rounds = 0
    while server.connections < KNOCKING and rounds < 10 * KNOCKING:
        rounds += 1
        await asyncio.sleep(0)
    for connection in outside:
        connection.close()
    await server.stop(5.0)
    return rounds


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def test_hundreds_of_connections_are_taken_in_a_few_rounds_of_the_loop(
    run: Callable[[Coroutine[Any, Any, int]], int],
) -> None:
    assert run(_rounds_until_all_are_in()) < KNOCKING // 20


async def test_an_address_is_taken_from_when_it_is_bound() -> None:
    """Linux lets two sockets have one port until one of them listens; a daemon does seconds after it has bound."""
    listener = bind("127.0.0.1:0")
    port = listener.getsockname()[1]
    with pytest.raises(LensError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
        bind(f"127.0.0.1:{port}")
    server = HttpServer(listener, Starlette())
    await server.start()
    with socket.create_connection(("127.0.0.1", port)) as outside:
        await server.stop(5.0)  # the server closes first: its side of the connection lingers
        assert outside.recv(1) == b""
    listener.close()
    bind(f"127.0.0.1:{port}").close()


async def test_an_answer_is_not_held_until_the_client_confirms_its_first_part() -> None:
    """asyncio switches Nagle's algorithm off only for sockets that say that they are TCP: 40 ms for each answer."""
    delayed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        delayed.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = bind("127.0.0.1:0")
    async with await asyncio.start_server(look, sock=listener):
        with socket.create_connection(listener.getsockname()):
            assert await delayed


@pytest.fixture
def few_files() -> Iterator[None]:
    """A limit as shells and service managers set it, below what the process may ask for."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_as_many_files_as_the_system_allows_are_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert allow_many_files() == hard
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    assert bool(caplog.records) is (hard != resource.RLIM_INFINITY and hard < FEW_FILES)
