"""The API over a real store, on a real socket: what the tests of the query routes ask."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from lens_core.http.app import build_app
from lens_core.http.server import HttpServer, bind
from lens_core.http.state import ApiState
from lens_core.http.tokens import TokenStore
from tests.plugins.sinks.postgresql.support import Spool, running_store


@dataclass
class QueryApp:
    """A served API; `state_of_daemon` is what the daemon says of itself ('' while it runs)."""

    url: str
    store: Any
    spool: Spool
    state: ApiState
    client: httpx.AsyncClient
    state_of_daemon: str = ""

    async def get(self, path: str, **parameters: Any) -> httpx.Response:
        """GET below /api/v1."""
        return await self.client.get(f"/api/v1{path}", params=parameters)

    async def json(self, path: str, **parameters: Any) -> Any:
        """The JSON of a GET that must succeed."""
        response = await self.get(path, **parameters)
        assert response.status_code == 200, response.text
        return response.json()

    async def data(self, uid: str = "workload-1", **parameters: Any) -> list[dict[str, Any]]:
        """The points of a workload."""
        found: list[dict[str, Any]] = (await self.json(f"/workloads/{uid}/metrics/data", **parameters))["data"]
        return found

    @asynccontextmanager
    async def stream(self, uid: str = "workload-1", **parameters: Any) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
        """The server-sent events of a workload: name and data."""
        path = f"/api/v1/workloads/{uid}/stream"
        async with self.client.stream("GET", path, params=parameters) as response:
            assert response.status_code == 200, await response.aread()
            yield _events(response.aiter_lines())


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


@asynccontextmanager
async def running_app(
    folder: Path, dsn: str, store_options: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[QueryApp]:
    """An application of its own on a free port."""
    async with running_store(folder, dsn, **(store_options or {})) as store:
        state = ApiState(
            metrics=SelfMetrics(),
            tokens=TokenStore(folder / "tokens.json"),
            directory=Directory(),
            sources=[],
            status=dict,
            ready=lambda: asked.state_of_daemon,
            replay=lambda sink: 0,
            store=store,
            directory_file=folder / "directory.json",
            **options,
        )
        server = HttpServer(bind("127.0.0.1:0"), build_app(state))
        await server.start()
        async with httpx.AsyncClient(base_url=server.url, timeout=240) as client:
            asked = QueryApp(server.url, store, Spool(store), state, client)
            yield asked
        await server.stop(2.0)
