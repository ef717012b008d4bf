"""One configured instance of a plugin."""

from __future__ import annotations

from typing import Any

import msgspec

from .components import Component, Sink
from .store import Store


class ComponentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One configured instance of a plugin: `plugin(settings, context)` makes it, in a process of its own if `isolate`.

    `written` is False for one that is there because nobody wrote that section and it works without settings.
    """

    name: str
    plugin: type[Component]
    type: str
    settings: Any
    written: bool = True
    isolate: bool = False


def why_not_isolated(kind: type[Component]) -> str:
    """Return why components of a class cannot have a process of their own; '' when they can."""
    if issubclass(kind, Store):
        return "it answers queries"
    if issubclass(kind, Sink) and kind.routes is not Sink.routes:
        return "it answers HTTP routes from what it holds in memory"
    return ""
