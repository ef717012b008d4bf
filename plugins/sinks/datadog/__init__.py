"""Metrics to Datadog's intake, version 2."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Sink, hookimpl

from .series import DatadogSettings
from .sink import Datadog

__all__ = ["Datadog", "DatadogSettings", "lens_sinks"]


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [Datadog]
