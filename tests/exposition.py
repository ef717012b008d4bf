"""The metrics that a daemon with every built-in plugin exposes."""

from __future__ import annotations

import re

from lens_core.base.self_metrics import MetricGroup, SelfMetrics
from lens_core.plugin_host.host import PluginHost


def exposition_with_plugins() -> str:
    """Return what a daemon with every built-in plugin exposes."""
    PluginHost.load()
    metrics = SelfMetrics()
    groups = [kind for kind in MetricGroup.__subclasses__() if kind.__module__.startswith("lens_plugins.")]
    assert len(groups) >= 5
    for kind in groups:
        metrics.group(kind)
    return metrics.exposition().decode()


def metric_names() -> list[str]:
    text = exposition_with_plugins()
    return sorted(set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)))
