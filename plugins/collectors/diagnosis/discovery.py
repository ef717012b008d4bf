"""Collectors of all installed plugins that want to run in the agent."""

from __future__ import annotations

import logging
import os
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from lens_core.commands import PluginHost

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
    """All collector classes; of our own plugins nothing else is imported, for this may be a training process."""
    others = {found.name for found in entry_points(group="lens") if _is_ours(found) and not _may_collect(found)}
    unwanted = {name.strip() for name in os.environ.get("LENS_DISABLED_PLUGINS", "").split(",")}
    host = PluginHost.load(disabled=others | unwanted)
    return [host.collector(name) for name in host.names("collector")]


def _is_ours(found: EntryPoint) -> bool:
    return found.value.startswith("lens_plugins.")


def _may_collect(found: EntryPoint) -> bool:
    return found.value.startswith("lens_plugins.collectors.")
