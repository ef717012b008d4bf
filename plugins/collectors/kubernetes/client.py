"""The Kubernetes API, as much of it as is needed: lists in pages, watches, single objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import msgspec

from .credentials import Access

# A watch sends bookmarks about once a minute; a connection that is silent for longer than this is dead.
SILENCE_SECONDS = 150.0


class ApiError(Exception):
    """The server answered with an error; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class Gone(Exception):
    """What is asked for is too long ago (410): list anew."""


class KubernetesApi:
    """One server, over one client."""

    def __init__(self, access: Access, timeout_seconds: float) -> None:
        self._access = access
        self._timeout_seconds = timeout_seconds
        self._client = httpx.AsyncClient(
            base_url=access.server, verify=access.tls, timeout=timeout_seconds, trust_env=False
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        """One object. Raises ApiError, Gone, httpx.HTTPError."""
        headers = {"Accept": "application/json", **await self._access.headers()}
        response = await self._client.get(path, params=dict(parameters or {}), headers=headers)
        self._check(response.status_code, response.content)
        return msgspec.json.decode(response.content)

    async def watch(self, path: str, parameters: Mapping[str, str]) -> AsyncIterator[Any]:
        """Events until the server ends it. Raises Gone, ApiError, httpx.HTTPError."""
        headers = {"Accept": "application/json", **await self._access.headers()}
        timeout = httpx.Timeout(self._timeout_seconds, read=SILENCE_SECONDS)
        async with self._client.stream(
            "GET", path, params=dict(parameters), headers=headers, timeout=timeout
        ) as stream:
            if stream.status_code != 200:
                self._check(stream.status_code, await stream.aread())
            async for line in stream.aiter_lines():
                if line.strip():
                    yield self._event(line)

    def _event(self, line: str) -> Any:
        try:
            event = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ApiError(200, f"a watch sent a line that is not JSON: {error}") from None
        if event.get("type") == "ERROR":
            status = event.get("object") or {}
            if status.get("code") == 410:
                raise Gone(str(status.get("message", "")))
            raise ApiError(int(status.get("code") or 500), str(status.get("message", "")))
        return event

    def _check(self, status: int, body: bytes) -> None:
        if status == 200:
            return
        if status == 401:
            self._access.refused()
        message = _message(body)
        if status == 410:
            raise Gone(message)
        raise ApiError(status, message)


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["message"])[:300]
    except (msgspec.DecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
