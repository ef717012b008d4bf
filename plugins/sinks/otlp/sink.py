"""The sink `otlp`: sends requests over HTTP or gRPC, and understands the answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

from prometheus_client import Counter

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Context,
    Delivered,
    Event,
    LensError,
    Measurement,
    MetricGroup,
    Poisoned,
    Record,
    Retry,
    SelfMetrics,
    Sink,
    StepMetrics,
)
from lens_core.plugin_api.protobuf import DELIMITED, VARINT, WireError, fields

from .grpc_transport import GrpcTransport
from .http_transport import HttpTransport
from .settings import OtlpSinkSettings

METRICS, LOGS = "metrics", "logs"


class OtlpSinkMetrics(MetricGroup):
    """Items that the receiver did not take although it took their request."""

    def __init__(self, metrics: SelfMetrics) -> None:
        self.rejected = Counter(
            "lens_otlp_rejected_items_total",
            "Data points and log records that a receiver refused in a partial success.",
            ["component", "signal"],
            registry=metrics.registry,
        )


class Transport(Protocol):
    """Carries requests to a receiver."""

    async def export(self, signal: str, body: bytes) -> bytes | Retry | Poisoned:
        """Send the message of a signal; the message of the answer when it was taken."""
        ...

    async def close(self) -> None:
        """Close the connections; the next request opens them again."""
        ...


class OtlpSink(Sink):
    """Send rows, events and measurements to an OpenTelemetry Collector, as metrics and log records."""

    name = "otlp"
    also_called = ("opentelemetry", "otlphttp", "otlpgrpc")
    Settings = OtlpSinkSettings
    accepts = (StepMetrics, Event, Measurement)

    settings: OtlpSinkSettings
    _transport: Transport | None = None

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._metrics = context.metrics.group(OtlpSinkMetrics)
        # Imported where it is used: the generated messages take 9 MiB, which a daemon without this sink saves.
        from .requests import Builder

        self._builder = Builder(self.settings.rows, self.settings.events, context.directory)
        self._own_task: asyncio.Task[None] | None = None
        # The signals of the batch that is sent again which the receiver has already.
        self._batch: tuple[object, ...] = ()
        self._taken: set[str] = set()

    async def start(self) -> None:
        """Get ready to send, and begin with Lens' own metrics where they are wanted. Raises LensError."""
        self._open_transport()
        if self.settings.own_metrics_seconds and self._own_task is None:
            self._own_task = asyncio.create_task(self._send_own_metrics())

    def _open_transport(self) -> Transport:
        if self._transport is None:
            kind = GrpcTransport if self.settings.protocol == "grpc" else HttpTransport
            self._transport = kind(self.settings)
        return self._transport

    async def stop(self) -> None:
        """Close the connections."""
        if self._own_task is not None:
            self._own_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._own_task
            self._own_task = None
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    async def check(self) -> None:
        """Post an empty request for each signal that is sent."""
        self._open_transport()
        try:
            for signal in (METRICS, *([LOGS] if self.settings.events or self.settings.rows != METRICS else [])):
                answer = await self._post_body(signal, b"")
                if answer is not None:
                    raise LensError(f"{self.settings.url}, {signal}: {answer.reason}")
        finally:
            await self.stop()

    def limits(self) -> BatchLimits:
        """As the settings say."""
        return BatchLimits(
            max_records=self.settings.max_records, max_bytes=self.settings.max_bytes, max_wait_seconds=1.0
        )

    async def send(self, batch: Batch) -> Answer:
        """Post the metrics of a batch and its log records; what the receiver has is not sent again."""
        identity = (batch.spool_id, batch.start, batch.end, len(batch.records))
        if identity != self._batch:
            self._batch, self._taken = identity, set()
        wanted = [record for record in batch.records if self._builder.is_wanted(record)]
        for signal in (METRICS, LOGS):
            if signal not in self._taken:
                answer = await self._post_records(signal, wanted)
                if answer is not None:
                    return answer
                self._taken.add(signal)
        return Delivered(filtered=len(batch.records) - len(wanted))

    async def _post_records(self, signal: str, records: Sequence[Record]) -> Retry | Poisoned | None:
        """Post what a signal has of these records; None when it is safe there, or when there is nothing."""
        build = self._builder.metrics_of if signal == METRICS else self._builder.logs_of
        try:
            body = await asyncio.to_thread(_encoded, build, records)
        except (ValueError, RecursionError) as error:  # a text that is not UTF-8, a message over 2 GiB
            return Poisoned(f"cannot be written as OTLP: {error}")
        return await self._post_body(signal, body) if body else None

    async def _post_body(self, signal: str, body: bytes) -> Retry | Poisoned | None:
        answer = await self._open_transport().export(signal, body)
        if not isinstance(answer, bytes):
            return answer
        rejected, message = _partial_success(answer)
        if rejected or message:
            # It must not be sent again, and which of the items it was nobody says.
            self._metrics.rejected.labels(self.context.name, signal).inc(rejected)
            text = message[:500] or "it says no more"
            self.context.logger.warning("The receiver refused items. signal=%s count=%d why=%s", signal, rejected, text)
        return None

    async def _send_own_metrics(self) -> None:
        """Send Lens' own metrics at their interval; the next ones replace those that could not be sent."""
        from .own_metrics import own_metrics

        while True:
            await asyncio.sleep(self.settings.own_metrics_seconds)
            message = own_metrics(self.context.metrics.registry, self.context.cluster)
            answer = await self._post_body(METRICS, message.SerializeToString())
            if answer is not None:
                self.context.logger.warning("Lens' own metrics were not sent. why=%s", answer.reason)


def _encoded(build: Any, records: Sequence[Record]) -> bytes:
    body: bytes = build(records).SerializeToString()
    return body


def _partial_success(body: bytes) -> tuple[int, str]:
    """The refused items and the message of an answer; what is no message of OTLP says nothing."""
    try:
        rejected, message = 0, ""
        for outer in fields(body):
            if outer.number == 1 and outer.kind == DELIMITED:
                for field in fields(outer.value):
                    if field.number == 1 and field.kind == VARINT:
                        rejected = field.value
                    elif field.number == 2 and field.kind == DELIMITED:
                        message = field.value.decode("utf-8", "replace")
    except WireError:
        return 0, ""
    return (rejected if rejected < 2**63 else 0), message
