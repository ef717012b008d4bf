"""The machine that this runs on: processors, memory, disks, network, GPUs, and the training processes on it."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Collector, hookimpl

from .collector import Host
from .settings import HostSettings

__all__ = ["Host", "HostSettings", "lens_collectors"]


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [Host]
