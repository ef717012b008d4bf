"""Records to another Lens, or to anything else that takes the envelope, by HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

import httpx
import msgspec

from lens_core import Answer, Batch, BatchLimits, Delivered, Record, Rejected, Retry, Secret, Sink, hookimpl
from lens_core.base.compression import compress
from lens_core.plugin_api.http_answers import refusal
from lens_core.records import RECORD_KINDS, encode_envelope


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the http sink.

    `url`: where the envelope is posted, for another Lens `http://HOST:8080/api/v1/records`. `token`: sent as a
    bearer token. `headers`: sent as they are. `compression`: zstd costs next to nothing, because the spool has packed
    most batches already; gzip or none for a receiver that does not know it. `expect`: `lens` wants the answer of
    another Lens before it believes in a 2xx (a proxy's login page is one too), `any` takes every 2xx for success.
    `timeout_seconds`: for one request. `max_records`, `max_bytes`: when a batch is full.
    """

    url: str
    token: Secret | None = None
    headers: dict[str, str] = {}
    compression: Literal["zstd", "gzip", "none"] = "zstd"
    expect: Literal["lens", "any"] = "lens"
    timeout_seconds: float = 30.0
    max_records: int = 5_000
    max_bytes: int = 4 * 1024 * 1024


class _Answer(msgspec.Struct, frozen=True):
    """What /api/v1/records answers."""

    success: Literal[True]
    rejected: list[dict[str, object]] = []


class Http(Sink):
    """Post records in their envelope (MessagePack) to another Lens or to a receiver of your own."""

    name = "http"
    also_called = ("lens",)
    Settings = HttpSettings
    accepts = tuple(RECORD_KINDS.values())

    settings: HttpSettings
    _client: httpx.AsyncClient

    async def start(self) -> None:
        """Open the client."""
        headers = {"Content-Type": "application/msgpack", **self.settings.headers}
        if self.settings.token:
            headers["Authorization"] = f"Bearer {self.settings.token.reveal()}"
        if self.settings.compression != "none":
            headers["Content-Encoding"] = self.settings.compression
        self._client = httpx.AsyncClient(headers=headers, timeout=self.settings.timeout_seconds)

    async def stop(self) -> None:
        """Close the client."""
        if hasattr(self, "_client"):
            await self._client.aclose()

    async def check(self) -> None:
        """Post an empty envelope."""
        await self.start()
        try:
            (await self._post(self._envelope([]))).raise_for_status()
        finally:
            await self.stop()

    def limits(self) -> BatchLimits:
        """As the settings say."""
        return BatchLimits(max_records=self.settings.max_records, max_bytes=self.settings.max_bytes)

    async def send(self, batch: Batch) -> Answer:
        """Post a batch and classify the answer."""
        try:
            response = await self._post(await self._body(batch))
        except httpx.HTTPError as error:
            return Retry(f"{type(error).__name__}: {error}", timed_out=isinstance(error, httpx.TimeoutException))
        if self.settings.expect == "any" and response.is_success:
            return Delivered()
        return classify(response.status_code, response.headers, response.content, len(batch.records))

    async def _body(self, batch: Batch) -> bytes:
        if batch.packed is not None and self.settings.compression == "zstd":
            return batch.packed
        return await asyncio.to_thread(self._envelope, batch.records)

    def _envelope(self, records: Sequence[Record]) -> bytes:
        return compress(encode_envelope(records), self.settings.compression)

    async def _post(self, body: bytes) -> httpx.Response:
        return await self._client.post(self.settings.url, content=body)


def classify(status: int, headers: Mapping[str, str], body: bytes, size: int) -> Answer:
    """What another Lens' answer means for a batch of `size` records."""
    return _rejections(body, size) if 200 <= status < 300 else refusal(status, headers, body)


def _rejections(body: bytes, size: int) -> Answer:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.DecodeError:
        return Retry(f"a 2xx that is not the answer of a Lens (set `expect: any` if it is meant): {body[:100]!r}")
    items = {
        index: str(item.get("reason", "refused"))
        for item in answer.rejected
        if isinstance(index := item.get("index"), int) and 0 <= index < size
    }
    return Rejected(items) if items else Delivered()


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [Http]
