"""A plugin host without entry points, and the context that a component gets."""

from __future__ import annotations

import logging
from pathlib import Path

from ..plugin_api import Component, Context
from ..plugin_host import PluginHost
from ..plugin_info import HOOKS, component_info, kind_of
from ..plugin_loading import Plugin, check_component
from ..self_metrics import SelfMetrics


def host_of(*classes: type[Component]) -> PluginHost:
    """A host in which exactly these classes are loaded, each as a plugin of its own name.

    Raises PluginError for a class that no host would take.
    """
    hooks = {kind: hook for hook, kind in HOOKS.items()}
    plugins = []
    for found in classes:
        check_component(found, hooks[kind_of(found)])
        plugin = Plugin(name=found.name, module=found.__module__, distribution="under-test", version="0")
        plugin.classes, plugin.components = [found], [component_info(found)]
        plugins.append(plugin)
    return PluginHost(plugins)


def make_context(name: str, data_dir: Path, *, cluster: str = "default") -> Context:
    """The context of one component, with metrics of its own."""
    return Context(
        name=name,
        logger=logging.getLogger(f"lens.test.{name}"),
        data_dir=data_dir,
        metrics=SelfMetrics(),
        cluster=cluster,
    )
