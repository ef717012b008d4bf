"""Detectors at work: made from the configuration, and their declared rules run over evidence."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from .configuration.settings import ComponentConfig
from .plugin_api import Context, Detector
from .self_metrics import SelfMetrics

logger = logging.getLogger("lens.detection")


def make_detectors(
    configured: Mapping[str, ComponentConfig], metrics: SelfMetrics | None = None, cluster: str = "default"
) -> list[Detector]:
    """The configured detectors, by name; raises what a detector's constructor raises."""
    metrics = metrics or SelfMetrics()
    made = []
    for name, component in sorted(configured.items()):
        context = Context(
            name=name,
            logger=logging.getLogger(f"lens.detector.{name}"),
            data_dir=Path(),
            metrics=metrics,
            cluster=cluster,
        )
        made.append(cast(Detector, component.plugin(component.settings, context)))
    return made
