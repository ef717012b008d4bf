"""The Datadog sink: payloads within the intake's limits, sending."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import msgspec
from prometheus_client import Counter

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    ConfigurationError,
    Context,
    Delivered,
    LensError,
    Measurement,
    MetricGroup,
    Poisoned,
    Rejected,
    Retry,
    SelfMetrics,
    Sink,
    StepMetrics,
)
from lens_core.plugin_api.credentials import find_credentials
from lens_core.plugin_api.encoding import compress
from lens_core.plugin_api.http_answers import is_web_page

from .series import Builder, Built, DatadogSettings, Series

ENCODINGS = {"gzip": "gzip", "zstd": "zstd1", "none": ""}
_OPEN, _CLOSE = b'{"series":[', b"]}"
_encoder = msgspec.json.Encoder()


class Payload(msgspec.Struct, frozen=True):
    """A compressed body, and which of the series are in it (from `first` on, `count` of them)."""

    body: bytes
    first: int
    count: int


class TooLarge(ValueError):
    """One series alone is over the limits; `args[0]` is its index."""


def pack_payloads(series: Sequence[Series], settings: DatadogSettings) -> Iterator[Payload]:
    """Bodies that hold all series in their order. Raises TooLarge."""
    encoded = [_encoder.encode(one) for one in series]
    first = size = points = 0
    for index, text in enumerate(encoded):
        count = len(series[index].points)
        full = size + len(text) + 1 > settings.max_body_bytes - len(_OPEN + _CLOSE)
        if index > first and (full or points + count > settings.max_points):
            yield from _fit(encoded, first, index, settings)
            first, size, points = index, 0, 0
        size += len(text) + 1
        points += count
    if first < len(encoded):
        yield from _fit(encoded, first, len(encoded), settings)


def _fit(encoded: Sequence[bytes], first: int, end: int, settings: DatadogSettings) -> Iterator[Payload]:
    """One body, or halves of it for as long as it is too large when compressed."""
    text = _OPEN + b",".join(encoded[first:end]) + _CLOSE
    body = compress(text, settings.compression)
    if len(body) <= settings.max_payload_bytes and len(text) <= settings.max_body_bytes:
        yield Payload(body, first, end - first)
    elif end - first == 1:
        raise TooLarge(first)
    else:
        middle = (first + end) // 2
        yield from _fit(encoded, first, middle, settings)
        yield from _fit(encoded, middle, end, settings)


_DEFAULT_SITE = "datadoghq.com"
_KEY_PAUSE_SECONDS = 60.0
TOO_LARGE = "too_large"


class DatadogMetrics(MetricGroup):
    """Values that the sink left out."""

    def __init__(self, metrics: SelfMetrics) -> None:
        self.dropped = Counter(
            "lens_datadog_dropped_values_total",
            "Values left out of rows that were sent, and errors that the intake named in a success.",
            ["component", "reason"],
            registry=metrics.registry,
        )


class Datadog(Sink):
    """Send metrics to Datadog: gauges, counts and rates, with tags, compressed and within the intake's limits."""

    name = "datadog"
    Settings = DatadogSettings
    accepts = (Measurement, StepMetrics)

    settings: DatadogSettings

    def __init__(self, settings: DatadogSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._client: httpx.AsyncClient | None = None
        self._refused = False
        self._metrics = context.metrics.group(DatadogMetrics)

    @classmethod
    def settings_from(cls, environ: Mapping[str, str]) -> DatadogSettings | None:
        """Usable as it is when DD_API_KEY is set."""
        return DatadogSettings() if environ.get("DD_API_KEY") else None

    async def start(self) -> None:
        """Find the key and open the client; raises ConfigurationError when there is no key.

        A key that cannot be fetched now (AWS does not answer) is fetched when there is something to send.
        """
        env = self.settings.env or os.environ.get("DD_ENV", "")
        common = [*self.settings.tags, *([f"env:{env}"] if env else [])]
        if self.context.cluster != "default":
            common.append(f"cluster:{self.context.cluster}")
        self._builder = Builder(self.settings, common)
        try:
            await self._make_client()
        except ConfigurationError:
            raise
        except LensError as error:
            self.context.logger.warning("%s", error)

    async def stop(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _make_client(self) -> httpx.AsyncClient:
        if self._client is None:
            headers = {"DD-API-KEY": await asyncio.to_thread(self._key), "Accept": "application/json"}
            headers["Content-Type"] = "application/json"
            encoding = ENCODINGS[self.settings.compression]
            if encoding:
                headers["Content-Encoding"] = encoding
            self._client = httpx.AsyncClient(headers=headers, timeout=self.settings.timeout_seconds)
        return self._client

    async def check(self) -> None:
        """Ask whether the key is valid; raises LensError that says so."""
        await self.start()
        try:
            response = await (await self._make_client()).get(f"{self._base}/api/v1/validate")
        except httpx.HTTPError as error:
            raise LensError(f"{self._base}: {type(error).__name__}: {error}") from None
        finally:
            await self.stop()
        if response.status_code in (401, 403):
            raise LensError(self._about_the_key(response.status_code))
        response.raise_for_status()

    def limits(self) -> BatchLimits:
        """As the settings say; a batch is one payload as a rule."""
        return BatchLimits(max_records=self.settings.max_records, max_bytes=4 * 1024 * 1024, max_wait_seconds=1.0)

    async def send(self, batch: Batch) -> Answer:
        """Post a batch; bad values are left out singly and counted."""
        built = self._builder.build(batch.records, time.time())
        self._count_dropped(built.dropped)
        answer = await self._send_all(built)
        if answer is not None:
            return answer
        if built.rejected:
            return Rejected(built.rejected, filtered=built.filtered)
        return Delivered(filtered=built.filtered)

    async def _send_all(self, built: Built) -> Answer | None:
        """Post all series; None when they are stored. What is too large alone joins the rejected."""
        left, owners = built.series, built.owners
        while left:
            try:
                payloads = list(pack_payloads(left, self.settings))
            except TooLarge as error:
                left, owners = self._without(built, left, owners, error.args[0])
                continue
            for payload in payloads:
                series = left[payload.first : payload.first + payload.count]
                answer = await self._post_payload(
                    payload, series, owners[payload.first : payload.first + payload.count], built
                )
                if answer is not None:
                    return answer
            return None
        return None

    def _without(
        self, built: Built, series: list[Series], owners: list[list[int]], index: int
    ) -> tuple[list[Series], list[list[int]]]:
        built.rejected.update(dict.fromkeys(owners[index], TOO_LARGE))
        return series[:index] + series[index + 1 :], owners[:index] + owners[index + 1 :]

    async def _post_payload(
        self, payload: Payload, series: list[Series], owners: list[list[int]], built: Built
    ) -> Answer | None:
        try:
            response = await (await self._make_client()).post(f"{self._base}/api/v2/series", content=payload.body)
        except httpx.HTTPError as error:
            return Retry(f"{type(error).__name__}: {error}", timed_out=isinstance(error, httpx.TimeoutException))
        except LensError as error:
            return Retry(str(error), _KEY_PAUSE_SECONDS)
        if response.status_code == 413:
            return await self._halves(series, owners, built)
        if response.status_code in (401, 403) and self.settings.aws_secret:
            await self.stop()  # the secret may have been rotated: it is read again
        return self._classify(response)

    async def _halves(self, series: list[Series], owners: list[list[int]], built: Built) -> Answer | None:
        """The intake found a body too large that was within its written limits: in halves, then one by one."""
        if len(series) == 1:
            built.rejected.update(dict.fromkeys(owners[0], TOO_LARGE))
            return None
        middle = len(series) // 2
        for part in (slice(0, middle), slice(middle, None)):
            for payload in pack_payloads(series[part], self.settings):
                chosen = slice(payload.first, payload.first + payload.count)
                answer = await self._post_payload(payload, series[part][chosen], owners[part][chosen], built)
                if answer is not None:
                    return answer
        return None

    def _classify(self, response: httpx.Response) -> Answer | None:
        """None when it is stored. 400 is about a point; 401, 403 and 404 are fixed by a person; the rest passes."""
        status = response.status_code
        errors = _errors(response.content)
        if status in (200, 202) and is_web_page(response.headers, response.content):
            return Retry(f"HTTP {status}: a web page is no answer of an intake; see `site` and `url`")
        if status in (200, 202):
            self._refused = False
            if errors:
                self._count_dropped({"said_by_the_intake": len(errors)})
                self.context.logger.warning(
                    "Datadog accepted a payload with errors. errors=%s", "; ".join(errors)[:500]
                )
            return None
        if status in (401, 403):
            if not self._refused:
                self.context.logger.error("%s", self._about_the_key(status))
            self._refused = True
            return Retry(self._about_the_key(status), _KEY_PAUSE_SECONDS)
        reason = f"HTTP {status}: {'; '.join(errors)[:300]}".rstrip(": ")
        if status == 400 and _is_json(response.content):  # anything else is a proxy's, or a port's that expects TLS
            return Poisoned(reason)
        if 300 <= status < 400:
            reason += " (a redirect is not followed; set `site` or `url` to where it leads)"
        return Retry(reason, _pause(response.headers))

    def _about_the_key(self, status: int) -> str:
        return (
            f"Datadog refused the API key (HTTP {status}) at {self._base}: it must be an API key (not an application "
            "key) of an organisation on this site; see `api_key` and `site`."
        )

    @property
    def _base(self) -> str:
        site = self.settings.site or os.environ.get("DD_SITE", "") or _DEFAULT_SITE
        return (self.settings.url or os.environ.get("DD_URL", "") or f"https://api.{site}").rstrip("/")

    def _key(self) -> str:
        if self.settings.api_key:
            return self.settings.api_key.reveal()
        secret, region = self.settings.aws_secret, self.settings.aws_region
        found = find_credentials(("DD_API_KEY",), os.environ, aws_secret=secret, aws_region=region)
        if "DD_API_KEY" not in found:
            raise ConfigurationError("datadog needs an API key: the setting `api_key`, DD_API_KEY, or `aws_secret`")
        return found["DD_API_KEY"].reveal()

    def _count_dropped(self, dropped: Mapping[str, int]) -> None:
        for reason, amount in dropped.items():
            self._metrics.dropped.labels(self.context.name, reason).inc(amount)


def _errors(body: bytes) -> Sequence[str]:
    try:
        content: Any = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError:
        return [body[:200].decode(errors="replace")]
    errors = content.get("errors") if isinstance(content, dict) else None
    return [str(error) for error in errors] if isinstance(errors, list) else []


def _is_json(body: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(body), dict)
    except msgspec.DecodeError:
        return False


def _pause(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until the next try, from either of the two headers."""
    for name in ("retry-after", "x-ratelimit-reset"):
        text = headers.get(name, "")
        if text.isdigit():
            return float(text)
    return None
