"""OpenTelemetry's protocol (OTLP): metrics become series and rows, log records log lines, Megatron's spans rows."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Source, hookimpl

from .source import Otlp


@hookimpl
def lens_sources() -> Sequence[type[Source]]:
    """Announce the source."""
    return [Otlp]
