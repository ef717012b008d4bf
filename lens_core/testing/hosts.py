"""A plugin host without entry points, and the context that a component gets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ..base.self_metrics import SelfMetrics
from ..plugin_api.components import Component, Context
from ..plugin_host.host import PluginHost, load_plugins
from ..plugin_host.info import HOOKS, component_info, kind_of
from ..plugin_host.loading import Plugin, check_component


def host_of(*classes: type[Component]) -> PluginHost:
    """A host in which exactly these classes are loaded, each as a plugin of its own name.

    Raises PluginError for a class that no host would take.
    """
    return PluginHost(_plugins_of(classes))


def _plugins_of(classes: Sequence[type[Component]]) -> list[Plugin]:
    hooks = {kind: hook for hook, kind in HOOKS.items()}
    plugins = []
    for found in classes:
        check_component(found, hooks[kind_of(found)])
        plugin = Plugin(name=found.name, module=found.__module__, distribution="under-test", version="0")
        plugin.classes, plugin.components = [found], [component_info(found)]
        plugins.append(plugin)
    return plugins


def host_with(*classes: type[Component]) -> PluginHost:
    """As `host_of`, with the installed plugins too; one that announces a given class already makes room for it."""
    wanted = {(kind_of(found), found.name) for found in classes}
    installed = [plugin for plugin in load_plugins() if not wanted & {*map(_claim, plugin.classes)}]
    return PluginHost([*installed, *_plugins_of(classes)])


def _claim(found: type[Component]) -> tuple[str, str]:
    return kind_of(found), found.name


def make_context(name: str, data_dir: Path, *, cluster: str = "default") -> Context:
    """The context of one component, with metrics of its own."""
    return Context(
        name=name,
        logger=logging.getLogger(f"lens.test.{name}"),
        data_dir=data_dir,
        metrics=SelfMetrics(),
        cluster=cluster,
    )
