"""PostgreSQL's work on a question ends when the client has gone, and nobody else's does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lens_core.http.disconnects import CancelOnDisconnect
from lens_core.http.server import HttpServer, bind
from lens_core.testing.waiting import until
from tests.durations import Stopwatch
from tests.lens_core.http.query_app import QueryApp, running_app
from tests.plugins.sinks.postgresql.support import row

# How soon a statement ends with its client: long before any time limit of the store would end it.
ENDS_SECONDS = 5.0
UID = "/api/v1/workloads/workload-1"
READING = [
    "/api/v1/workloads",
    "/api/v1/workloads?framework=primus&state=failed",
    "/api/v1/overview",
    "/api/v1/metrics/data?uid=workload-1&aggregate=p95&interval=10it",
    f"{UID}/metrics/data?last=5&order=desc&fields=rank,tags",
    UID,
    f"{UID}/events",
    f"{UID}/detection",
    f"{UID}/diagnosis",
    f"{UID}/metrics/sources",
    f"{UID}/metrics/available",
    f"{UID}/metrics/data",
    f"{UID}/metrics/data?format=csv",
    f"{UID}/metrics/data?format=arrow",
    f"{UID}/metrics/data?max_points=100",
    f"{UID}/metrics/data?aggregate=mean&interval=1m",
    f"{UID}/metrics/rows",
    f"{UID}/metrics/iteration-times",
    f"{UID}/stream",
]
GRAFANA = {"targets": [{"target": "loss", "payload": {"workload_uid": "workload-1"}}]}
ASKING = [
    ("/api/v1/query", GRAFANA),
    ("/api/v1/search", {"target": "lo"}),
    ("/api/v1/variable", {"payload": {"target": "metrics workload-1"}}),
    ("/api/v1/annotations", {"annotation": {"query": "workload-1"}}),
    ("/api/v1/metrics", {}),
]


class Server:
    """The activity of PostgreSQL, and a transaction that locks Lens' tables."""

    def __init__(self, dsn: str) -> None:
        self._look = psycopg.connect(dsn, autocommit=True)
        self._lock = psycopg.connect(dsn)

    def close(self) -> None:
        self._look.close()
        self._lock.close()

    def active(self) -> set[tuple[Any, ...]]:
        """The statements that wait for a lock or sleep, each with its session and when it began."""
        found = self._look.execute(
            "select pid, query_start from pg_stat_activity"
            " where datname = current_database() and application_name = 'lens' and state = 'active'"
            " and wait_event_type in ('Lock', 'Timeout')"
        )
        return set(found.fetchall())

    def lock_tables(self) -> None:
        names = self._lock.execute("select tablename from pg_tables where tablename like 'lens\\_%'").fetchall()
        self._lock.execute(f"lock table {', '.join(name for (name,) in names)} in access exclusive mode".encode())

    def unlock_tables(self) -> None:
        self._lock.rollback()


@pytest.fixture
async def asked(tmp_path: Path, postgres_dsn: str) -> AsyncIterator[QueryApp]:
    """Without the making of blocks, whose statements would wait for the locks, too."""
    async with running_app(tmp_path, postgres_dsn, store_options={"blocks": False}) as app:
        yield app


@pytest.fixture
def server(postgres_dsn: str) -> Any:
    with contextlib.closing(Server(postgres_dsn)) as found:
        yield found


async def begin(url: str, path: str, body: Any = None) -> asyncio.StreamWriter:
    """Send a request and read nothing."""
    address = urlsplit(url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: lens\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    writer.write(head.encode() + content)
    await writer.drain()
    return writer


@pytest.mark.parametrize(("path", "body"), [*((path, None) for path in READING), *ASKING])
async def test_a_statement_ends_with_its_client(asked: QueryApp, server: Server, path: str, body: Any) -> None:
    await asked.spool.deliver(*(row(step) for step in range(10)))
    server.lock_tables()
    before = server.active()
    client = await begin(asked.url, path, body)
    await until(lambda: bool(server.active() - before), "the statement runs")
    (statement,) = server.active() - before
    other = asyncio.create_task(asked.data())
    await until(lambda: len(server.active() - before) == 2, "another client's statement runs")
    client.close()
    watch = Stopwatch()
    await until(lambda: statement not in server.active(), "the statement of the closed client has ended")
    assert watch.seconds() < ENDS_SECONDS
    assert len(server.active() - before) == 1
    assert not other.done()
    server.unlock_tables()
    assert len(await other) == 10
    pool = asked.store._database._readers._pool
    await until(lambda: pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"], "all are given back")
    assert not pool.get_stats().get("returns_bad", 0)
    assert not pool.get_stats().get("connections_lost", 0)
    assert len(await asked.data()) == 10


async def test_an_export_that_is_removed_ends_its_statement(asked: QueryApp, server: Server) -> None:
    await asked.spool.deliver(*(row(step) for step in range(10)))
    server.lock_tables()
    before = server.active()
    made = await asked.client.post("/api/v1/exports", json={"workload_uid": "workload-1"})
    await until(lambda: bool(server.active() - before), "the export's statement runs")
    assert (await asked.client.delete(made.json()["url"])).status_code == 204
    watch = Stopwatch()
    await until(lambda: not server.active() - before, "the statement has ended")
    assert watch.seconds() < ENDS_SECONDS
    server.unlock_tables()
    assert len(await asked.data()) == 10


async def test_a_statement_in_the_middle_of_an_answer_ends_with_its_client(asked: QueryApp, server: Server) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        async with asked.store._database.reading() as connection, connection.transaction():
            yield b"first"
            await connection.execute("select pg_sleep(600)")

    async def endpoint(request: Request) -> Response:
        return StreamingResponse(pieces())

    app = Starlette(routes=[Route("/", endpoint, middleware=[Middleware(CancelOnDisconnect)])])
    http = HttpServer(bind("127.0.0.1:0"), app)
    await http.start()
    before = server.active()
    async with httpx.AsyncClient() as client, client.stream("GET", http.url) as answer:
        raw = answer.aiter_raw()  # held: when it goes, the client closes
        assert await anext(raw) == b"first"
        await until(lambda: bool(server.active() - before), "the statement runs")
    watch = Stopwatch()
    await until(lambda: not server.active() - before, "the statement has ended")
    assert watch.seconds() < ENDS_SECONDS
    assert len(await asked.data()) == 0
    assert not asked.store._database._readers._pool.get_stats().get("returns_bad", 0)
    await http.stop(1.0)


async def test_an_answer_that_is_sent_is_not_cancelled_afterwards() -> None:
    ended: list[str] = []

    async def pieces() -> AsyncIterator[bytes]:
        yield b"all"

    class Slow(StreamingResponse):
        async def stream_response(self, send: Any) -> None:
            await super().stream_response(send)
            await asyncio.sleep(0)  # whatever is tidied after the end
            await asyncio.sleep(0)
            ended.append("tidied")

    async def endpoint(request: Request) -> Response:
        return Slow(pieces())

    app = Starlette(routes=[Route("/", endpoint, middleware=[Middleware(CancelOnDisconnect)])])
    http = HttpServer(bind("127.0.0.1:0"), app)
    await http.start()
    async with httpx.AsyncClient() as client:
        for _ in range(3):
            assert (await client.get(http.url)).text == "all"
    await until(lambda: len(ended) == 3, "all are tidied")
    await http.stop(1.0)
