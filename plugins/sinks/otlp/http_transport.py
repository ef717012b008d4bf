"""OTLP over HTTP: protobuf, one path for each signal."""

from __future__ import annotations

import asyncio

import httpx

from lens_core import Poisoned, Retry
from lens_core.plugin_api.encoding import compress
from lens_core.plugin_api.http_answers import is_web_page, refusal
from lens_core.plugin_api.urls import basic_auth, revealed

from .settings import OtlpSinkSettings, tls_context

_MEDIA_TYPE = "application/x-protobuf"


class HttpTransport:
    """Posts requests; the client is opened with the first one. Raises ConfigurationError for unusable certificates."""

    def __init__(self, settings: OtlpSinkSettings) -> None:
        self._settings = settings
        self._verify = tls_context(settings) if settings.url.lower().startswith("https") else True
        self._client: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def export(self, signal: str, body: bytes) -> bytes | Retry | Poisoned:
        """Send the message of a signal; the message of the answer when it was taken."""
        packed = await asyncio.to_thread(compress, body, self._settings.compression)
        url = f"{self._settings.url.rstrip('/')}/v1/{signal}"
        try:
            response = await self._open_client().post(url, content=packed)
        except httpx.HTTPError as error:
            return Retry(f"{type(error).__name__}: {error}", timed_out=isinstance(error, httpx.TimeoutException))
        status, content = response.status_code, response.content
        if not response.is_success or is_web_page(response.headers, content):
            return refusal(status if not response.is_success else 404, response.headers, content)
        return content

    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            settings = self._settings
            headers = {"Content-Type": _MEDIA_TYPE, **revealed(settings.headers)}
            if settings.token:
                headers["Authorization"] = f"Bearer {settings.token.reveal()}"
            if settings.compression != "none":
                headers["Content-Encoding"] = settings.compression
            auth = basic_auth(settings.username, settings.password)
            self._client = httpx.AsyncClient(
                headers=headers, auth=auth, timeout=settings.timeout_seconds, verify=self._verify
            )
        return self._client
