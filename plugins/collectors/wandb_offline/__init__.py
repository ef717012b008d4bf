"""The logs that wandb keeps of its runs (`run-ID.wandb`), offline and online: backfill where nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Collector, hookimpl

from .collector import WandbOffline
from .settings import WandbOfflineSettings

__all__ = ["WandbOffline", "WandbOfflineSettings", "lens_collectors"]


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [WandbOffline]
