"""Training rows to InfluxDB: convert, send, classify the answer. Batching, retry and the spool are the host's."""

from __future__ import annotations

import math
from typing import Annotated, Any

import httpx
import msgspec
from msgspec import Meta

from lens_core import (
    Answer,
    Batch,
    Context,
    Delivered,
    Poisoned,
    Rejected,
    Retry,
    Secret,
    Sink,
    StepMetrics,
    hookimpl,
)


class InfluxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the influx sink."""

    url: Annotated[str, Meta(description="the server, for example http://influx:8086")]
    bucket: Annotated[str, Meta(min_length=1, description="the bucket that rows are written to")]
    org: Annotated[str, Meta(description="the organisation")] = ""
    token: Annotated[Secret | None, Meta(description="an API token that may write")] = None
    measurement: Annotated[str, Meta(min_length=1, description="the measurement's name")] = "training"
    timeout_seconds: Annotated[float, Meta(gt=0, description="for one request")] = 10.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("url: must begin with http:// or https://")


class Influx(Sink):
    """Write every row as one point; NaN and infinities, which InfluxDB cannot hold, are left out of it."""

    name = "influx"
    Settings = InfluxSettings
    accepts = (StepMetrics,)

    def __init__(self, settings: InfluxSettings, context: Context) -> None:
        super().__init__(settings, context)
        token = settings.token.reveal() if settings.token else ""
        self._client = httpx.AsyncClient(
            base_url=settings.url,
            timeout=settings.timeout_seconds,
            headers={"Authorization": f"Token {token}"} if token else {},
        )

    async def stop(self) -> None:
        await self._client.aclose()

    async def check(self) -> None:
        (await self._client.get("/ping")).raise_for_status()

    async def send(self, batch: Batch) -> Answer:
        lines: list[str] = []
        rejected: dict[int, str] = {}
        for index, row in enumerate(batch.records):
            line = to_line(row, self.settings.measurement) if isinstance(row, StepMetrics) else ""
            if line:
                lines.append(line)
            else:
                rejected[index] = "no value that InfluxDB can hold"
        answer = await self._write("\n".join(lines)) if lines else Delivered()
        return Rejected(rejected) if rejected and isinstance(answer, Delivered) else answer

    async def _write(self, body: str) -> Answer:
        query = {"bucket": self.settings.bucket, "org": self.settings.org, "precision": "us"}
        try:
            response = await self._client.post("/api/v2/write", params=query, content=body.encode())
        except httpx.TransportError as error:
            return Retry(f"{type(error).__name__}: {error}")
        if response.is_success:
            return Delivered()
        if response.status_code in (400, 413, 422):
            return Poisoned(f"HTTP {response.status_code}")
        wait = response.headers.get("Retry-After", "")
        return Retry(f"HTTP {response.status_code}", after_seconds=float(wait) if wait.isdigit() else None)


def to_line(row: StepMetrics, measurement: str) -> str:
    """A row in InfluxDB's line protocol, '' if nothing of it can be stored. A point's time is the row's own, in µs.

    One series for each workload, run and rank; a redelivered row is the same point and overwrites itself.
    """
    values = {name: value for name, value in row.values.items() if math.isfinite(value)}
    if not values:
        return ""
    origin = row.origin
    tags: dict[str, Any] = {
        "workload": origin.workload_uid or origin.pod_uid or origin.pod_name,
        "run": row.run_id,
        "source": row.data_source,
        "rank": origin.rank,
    }
    head = ",".join(
        [
            _escape(measurement),
            *(f"{key}={_escape(str(value))}" for key, value in tags.items() if value not in ("", None)),
        ]
    )
    fields = [f"step={row.row_step}i", *(f"{_escape(name)}={value!r}" for name, value in values.items())]
    time = "" if row.event_time is None else f" {round(row.event_time * 1_000_000)}"
    return f"{head} {','.join(fields)}{time}"


def _escape(text: str) -> str:
    text = text.encode("utf-8", "replace").decode().replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "")
    for character in ",= ":
        text = text.replace(character, "\\" + character)
    return text


@hookimpl
def lens_sinks() -> list[type[Sink]]:
    """What this distribution brings."""
    return [Influx]
