"""`lens graph`: the pipelines of a configuration, drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from ..config.loading import Config, PipelineConfig, load_config
from ..plugin_api.instance import ComponentConfig
from ..plugin_host.host import PluginHost
from .client import plugins_dir_option
from .wording import print_text


@click.command("graph")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@plugins_dir_option
def command(file: Path | None) -> None:
    """Draw the pipelines of FILE, or of the built-in configuration.

    \b
    Examples:
      lens graph lens.yaml
      lens graph                 what runs when there is no file
    """
    print_text("\n".join(line.rstrip() for line in draw(load_config(file, PluginHost.load()))))


def draw(config: Config) -> Iterator[str]:
    """The lines of the drawing."""
    for number, pipeline in enumerate(config.pipelines.values()):
        if number:
            yield ""
        yield from _pipeline(pipeline, config)
    detectors = ", ".join(config.detectors) or "none"
    yield ""
    yield f"detectors: {detectors}"
    if config.store:
        yield f"queries are answered by: {config.store}"


def _pipeline(pipeline: PipelineConfig, config: Config) -> Iterator[str]:
    components = {**config.sources, **config.collectors, **config.analyzers}
    left = [_component_label(components[name]) for name in pipeline.sources] or ["(nothing)"]
    right = [
        _component_label(config.sinks[name]) + ("" if config.sinks[name].required else " (optional)")
        for name in pipeline.sinks
    ] or ["(nothing)"]
    middle = f"[ {pipeline.name}: {pipeline.spool.kind} spool{_filter(pipeline)} ]"
    height = max(len(left), len(right))
    centre = (height - 1) // 2
    width = max(map(len, left))
    for row in range(height):
        start = left[row].ljust(width) + " ─" if row < len(left) else " " * (width + 2)
        start += _joint(row, len(left), centre, height, "┐┤┘┬┼┴", "│")
        box = f"─▶ {middle} ─" if row == centre else " " * (len(middle) + 5)
        end = _joint(row, len(right), centre, height, "┌├└┬┼┴", "│")
        yield f"{start}{box}{end}" + (f"─▶ {right[row]}" if row < len(right) else "")


def _joint(row: int, count: int, centre: int, height: int, corners: str, bar: str) -> str:
    """The character where a row meets the vertical line that gathers `count` rows; the box is at row `centre`."""
    top, bottom = 0, max(count - 1, centre)
    if top == bottom:
        return "─" if row == centre else " "
    if row > bottom:
        return " "
    if row == centre:
        above, below = row > top, row < bottom
        if row >= count:
            return "└" if corners[0] == "┐" else "┘"
        return corners[3] if below and not above else corners[4] if above and below else corners[5]
    if row >= count:
        return bar
    return corners[0] if row == top else corners[2] if row == bottom else corners[1]


def _component_label(component: ComponentConfig) -> str:
    return component.name if component.name == component.type else f"{component.name} ({component.type})"


def _filter(pipeline: PipelineConfig) -> str:
    chosen = pipeline.filter
    parts = [*chosen.kinds, *chosen.data_sources, *(f"{key}={value}" for key, value in chosen.labels.items())]
    return f", only {' '.join(parts)}" if parts else ""
