"""Runs of a project on W&B's cloud (or a W&B server) as twenty metrics, and the history of chosen runs as rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lens_core import Collector, hookimpl

from .collector import WandbCloud
from .settings import WandbCloudSettings

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]

__all__ = ["WandbCloud", "WandbCloudSettings", "lens_collectors", "plugin"]


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [WandbCloud]
