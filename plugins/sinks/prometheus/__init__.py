"""Prometheus and everything that speaks its remote write; and the latest training values for a scraper."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Sink, hookimpl

from .plugin import Prometheus


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [Prometheus]
