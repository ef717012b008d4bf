"""Collectors of all installed plugins that want to run in the agent."""

from __future__ import annotations

import logging
from typing import Any

from lens_core.plugin_host import PluginHost

from .base import AgentOptions, DataCollector

logger = logging.getLogger("lens.diagnosis")


def installed_collectors(options: AgentOptions) -> list[DataCollector]:
    """What plugins offer by `data_collector(options)` on a collector class; a broken one is said and left out."""
    found: list[DataCollector] = []
    for kind in _collector_classes():
        make = getattr(kind, "data_collector", None)
        if make is None:
            continue
        try:
            collector = make(options)
        except Exception:
            logger.exception("A plugin's diagnosis collector cannot be made. collector=%s", kind.__qualname__)
            continue
        if collector is not None:
            found.append(collector)
    return found


def _collector_classes() -> list[Any]:
    host = PluginHost.load()
    return [host.collector(name) for name in host.names("collector")]
