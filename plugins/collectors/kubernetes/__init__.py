"""Pods and their owners from the Kubernetes API."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Collector, hookimpl

from .plugin import Kubernetes


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [Kubernetes]
