"""The settings of the host and of every plugin of Lens, made by `python -m lens_core.cli.settings_reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click
import msgspec

from ..config.settings import FilterSettings, ServerSettings, SpoolSettings
from ..delivery.sending.policy import DeliverySettings
from ..plugin_api.sink_answers import BatchLimits
from ..plugin_host.host import PluginHost
from ..plugin_host.info import HOST_KEYS, KINDS, ComponentInfo, ComponentKind, SettingInfo, settings_in
from ..plugin_host.loading import OWN_DISTRIBUTION

HEAD = """# Settings of the host and of every plugin

Made from the classes themselves by `python -m lens_core.cli.settings_reference > docs/settings.md`; a test compares.
`lens plugins NAME` shows the same in the terminal, also for plugins of others. How a file is read and what the host
itself understands is in [configuration.md](configuration.md).
"""
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "server": ServerSettings,
    "spool, for all pipelines or in one": SpoolSettings,
    "delivery, for all sinks or in one": DeliverySettings,
    "limits, in a sink": BatchLimits,
    "filter, in a pipeline or a sink": FilterSettings,
}


def settings_reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_host(), *(line for kind in KINDS for line in _kind(kind))])


def _host() -> Iterator[str]:
    yield "## Sections of the host\n"
    for name, settings in SECTIONS.items():
        yield from _table(name, " ".join((settings.__doc__ or "").split("\n\n")[0].split()), settings_in(settings))


def _kind(kind: ComponentKind) -> Iterator[str]:
    components = [
        component
        for plugin in PluginHost.load().plugins()
        if plugin.distribution == OWN_DISTRIBUTION
        for component in plugin.components
        if component.kind == kind
    ]
    yield f"## {kind.capitalize()}s\n"
    yield "Beside their own, all of them take " + ", ".join(f"`{key}`" for key in HOST_KEYS[kind]) + ".\n"
    without = [component for component in components if not component.settings]
    for component in sorted(components, key=lambda found: found.name):
        if component.settings:
            yield from _component(component)
    if without:
        names = ", ".join(f"`{component.name}`" for component in sorted(without, key=lambda found: found.name))
        yield f"Without settings of their own: {names}.\n"


def _component(component: ComponentInfo) -> Iterator[str]:
    yield from _table(component.name, component.summary, component.settings)


def _table(name: str, summary: str, settings: Iterable[SettingInfo]) -> Iterator[str]:
    yield f"### {name}\n\n{summary}\n\n| setting | type | default | meaning |\n|---|---|---|---|"
    yield from map(_row, settings)
    yield ""


def _row(setting: SettingInfo) -> str:
    default = "required" if setting.required else f"`{msgspec.json.encode(setting.default).decode()}`"
    meaning = (setting.documentation or "–") + (f" ({setting.deprecated})" if setting.deprecated else "")
    cells = [f"`{setting.name}`", setting.type, default.replace("`null`", "–"), meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    click.echo(settings_reference(), nl=False)
