"""One configured instance of a plugin."""

from __future__ import annotations

from typing import Any

import msgspec

from .components import Component


class ComponentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One configured instance of a plugin: `plugin(settings, context)` makes it.

    `written` is False for one that is there because nobody wrote that section and it works without settings.
    """

    name: str
    plugin: type[Component]
    type: str
    settings: Any
    written: bool = True
