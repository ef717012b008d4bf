"""The settings of every plugin of Lens, made from their classes: `python -m lens_core.cli.settings_reference`."""

from __future__ import annotations

from collections.abc import Iterator

import click
import msgspec

from ..plugin_host import PluginHost
from ..plugin_info import HOST_KEYS, KINDS, ComponentInfo, ComponentKind, SettingInfo
from ..plugin_loading import OWN_DISTRIBUTION

HEAD = """# Settings of every plugin

Made from the plugins' own classes by `python -m lens_core.cli.settings_reference > docs/settings.md`; a test compares.
`lens plugins NAME` shows the same in the terminal, also for plugins of others. How a file is read and what the host
itself understands is in [configuration.md](configuration.md).
"""


def settings_reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for kind in KINDS for line in _kind(kind))])


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
    yield f"### {component.name}\n\n{component.summary}\n\n| setting | type | default | meaning |\n|---|---|---|---|"
    yield from map(_row, component.settings)
    yield ""


def _row(setting: SettingInfo) -> str:
    default = "required" if setting.required else f"`{msgspec.json.encode(setting.default).decode()}`"
    meaning = (setting.documentation or "–") + (f" ({setting.deprecated})" if setting.deprecated else "")
    cells = [f"`{setting.name}`", setting.type, default.replace("`null`", "–"), meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    click.echo(settings_reference(), nl=False)
