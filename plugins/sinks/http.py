"""Records to another Lens, or to anything else that takes the envelope, by HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import httpx
import msgspec
from msgspec import Meta

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Delivered,
    LensError,
    Poisoned,
    Record,
    Rejected,
    Retry,
    Secret,
    Sink,
    hookimpl,
)
from lens_core.plugin_api.encoding import RECORD_KINDS, compress, encode_envelope
from lens_core.plugin_api.http_answers import describe_answer, is_lens_refusal, is_lens_success, outage, refusal
from lens_core.plugin_api.urls import basic_auth, revealed, separate_login


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the http sink.

    `url`: where the envelope is posted, for another Lens `http://HOST:8080/api/v1/records`. `token`: sent as a
    bearer token. `username`, `password`: for basic authentication, as they are. `headers`: sent as they are.
    `compression`: zstd costs next to nothing, because the spool has packed most batches already; gzip or none for a
    receiver that does not know it. `expect`: `lens` wants the answer of another Lens before it believes in a 2xx (a
    proxy's login page is one too), `any` takes every 2xx for success. `timeout_seconds`: for one request.
    `max_records`, `max_bytes`: when a batch is full.
    """

    url: Annotated[str, Meta(pattern=r"^https?://[^\s/]", examples=["http://HOST:8080/api/v1/records"])]
    token: Secret | None = None
    username: str = ""
    password: Secret | None = None
    headers: dict[str, Secret] = {}
    compression: Literal["zstd", "gzip", "none"] = "zstd"
    expect: Literal["lens", "any"] = "lens"
    timeout_seconds: float = 30.0
    max_records: int = 5_000
    max_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        separate_login(self)


class _Answer(msgspec.Struct, frozen=True):
    """The answer of /api/v1/records."""

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
    _taken_bytes = 0  # the largest body that was taken

    async def start(self) -> None:
        """Open the client."""
        headers = {"Content-Type": "application/msgpack", **revealed(self.settings.headers)}
        if self.settings.token:
            headers["Authorization"] = f"Bearer {self.settings.token.reveal()}"
        if self.settings.compression != "none":
            headers["Content-Encoding"] = self.settings.compression
        auth = basic_auth(self.settings.username, self.settings.password)
        self._client = httpx.AsyncClient(headers=headers, auth=auth, timeout=self.settings.timeout_seconds)

    async def stop(self) -> None:
        """Close the client."""
        if hasattr(self, "_client"):
            await self._client.aclose()

    async def check(self) -> None:
        """Post an empty envelope."""
        await self.start()
        try:
            response = (await self._post_body(self._envelope([]))).raise_for_status()
            if self.settings.expect == "lens" and not is_lens_success(response.status_code, response.content):
                raise LensError(f"{self.settings.url} answered {response.status_code} with what no Lens answers")
        finally:
            await self.stop()

    def limits(self) -> BatchLimits:
        """As the settings say."""
        return BatchLimits(max_records=self.settings.max_records, max_bytes=self.settings.max_bytes)

    async def send(self, batch: Batch) -> Answer:
        """Post a batch and classify the answer."""
        body = await self._encode_batch(batch)
        try:
            response = await self._post_body(body)
        except httpx.HTTPError as error:
            return Retry(f"{type(error).__name__}: {error}", timed_out=isinstance(error, httpx.TimeoutException))
        answer = self._classify(response, batch, len(body))
        if isinstance(answer, (Delivered, Rejected)):
            self._taken_bytes = max(self._taken_bytes, len(body))
        return answer

    def _classify(self, response: httpx.Response, batch: Batch, sent_bytes: int) -> Answer:
        status, content = response.status_code, response.content
        if self.settings.expect == "any":
            return Delivered() if response.is_success else refusal(status, response.headers, content)
        if status == 413 and (len(batch.records) > 1 or 0 < self._taken_bytes < sent_bytes):
            # A proxy's limit: smaller bodies pass. One that refuses what passed before is ill.
            return Poisoned(f"HTTP 413: a body of {sent_bytes} bytes is too large for the receiver")
        return classify(status, response.headers, content, len(batch.records))

    async def _encode_batch(self, batch: Batch) -> bytes:
        if batch.packed is not None and self.settings.compression == "zstd":
            return batch.packed
        return await asyncio.to_thread(self._envelope, batch.records)

    def _envelope(self, records: Sequence[Record]) -> bytes:
        return compress(encode_envelope(records), self.settings.compression)

    async def _post_body(self, body: bytes) -> httpx.Response:
        return await self._client.post(self.settings.url, content=body)


def classify(status: int, headers: Mapping[str, str], body: bytes, size: int) -> Answer:
    """The meaning of another Lens' answer for a batch of `size` records; only its own error shape is a refusal."""
    if 200 <= status < 300:
        return _rejections(body, size)
    if is_lens_refusal(status, body):
        return Poisoned(describe_answer(status, body))
    hint = "not the answer of a Lens; does the url lead to one?"
    return outage(status, headers, body) or Retry(f"{describe_answer(status, body)} ({hint})")


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
