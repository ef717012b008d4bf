"""OpenTelemetry's protocol (OTLP) out: rows, events and measurements to any Collector."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Sink, hookimpl

from .sink import OtlpSink


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [OtlpSink]
