"""An application around one source, with a gate that notes what comes in."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from lens_core import Context, Overloaded, Record, Source
from lens_core.base.self_metrics import SelfMetrics
from lens_core.http.app import build_app
from lens_core.http.state import ApiState
from lens_core.http.tokens import TokenStore


class NotingGate:
    """Keeps what was submitted; `closed` makes it refuse, as a full spool does."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.received = 0
        self.rejected = 0
        self.refused = 0
        self.closed = False

    async def submit(
        self,
        records: Sequence[Record],
        *,
        received: int | None = None,
        filtered: int = 0,
        rejected: Mapping[str, int] | None = None,
    ) -> None:
        """As plugin_api.Gate."""
        if self.closed:
            self.refused += 1
            raise Overloaded("the spool is full", retry_after_seconds=3)
        self.records += records
        self.received += len(records) if received is None else received
        self.rejected += sum((rejected or {}).values())


class IngestApp:
    """The application, its state and an HTTP client that speaks to it without a socket."""

    def __init__(self, kind: type[Source], data_dir: Path, *, settings: Any = None, **state: Any) -> None:
        self.metrics = SelfMetrics()
        context = Context(name=kind.name, logger=logging.getLogger("test"), data_dir=data_dir, metrics=self.metrics)
        source = self.source = kind(settings or kind.Settings(), context)
        self.gate = NotingGate()
        source.gate = self.gate
        self.tokens = TokenStore(data_dir)
        self.state = ApiState(
            metrics=self.metrics,
            tokens=self.tokens,
            directory=context.directory,
            sources=[source],
            status=dict,
            ready=str,
            replay=lambda sink: None,
            **state,
        )
        self.app = build_app(self.state)

    def client(self, address: str = "127.0.0.1") -> httpx.AsyncClient:
        """A client that comes from this address."""
        transport = httpx.ASGITransport(self.app, client=(address, 1234), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://lens")

    async def post(self, path: str, **request: Any) -> httpx.Response:
        """POST from loopback."""
        async with self.client() as client:
            return await client.post(path, **request)
