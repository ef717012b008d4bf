"""The hooks by which a plugin announces its classes and commands."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pluggy

from .analyzer import Analyzer
from .components import Collector, Detector, Sink, Source

hookspec = pluggy.HookspecMarker("lens")


class HookSpecs:
    """The hooks that a plugin may implement; each returns classes, but for `lens_commands`."""

    @hookspec
    def lens_sources(self) -> Sequence[type[Source]]:
        """Sources of this plugin."""
        return ()

    @hookspec
    def lens_collectors(self) -> Sequence[type[Collector]]:
        """Collectors of this plugin."""
        return ()

    @hookspec
    def lens_detectors(self) -> Sequence[type[Detector]]:
        """Detectors of this plugin."""
        return ()

    @hookspec
    def lens_sinks(self) -> Sequence[type[Sink]]:
        """Sinks of this plugin."""
        return ()

    @hookspec
    def lens_analyzers(self) -> Sequence[type[Analyzer]]:
        """Analyzers of this plugin. Since 1.3."""
        return ()

    @hookspec
    def lens_commands(self) -> Sequence[click.Command]:
        """Commands of `lens` that belong to this plugin. Since 1.3."""
        return ()
