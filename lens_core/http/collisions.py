"""Refuses routes of plugins that another route answers: one of the two would never be asked, and nobody would know."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.routing import Route

from ..base.errors import LensError
from .openapi import DeclaredRoute

_PARAMETER = re.compile(r"\{[^{}]*\}")


class RouteCollision(LensError):
    """Two routes take the same requests; `component` is the instance that has to give way."""

    def __init__(self, message: str, component: str) -> None:
        super().__init__(message)
        self.component = component


def refuse_collisions(routes: Sequence[Route]) -> None:
    """Raise RouteCollision for a plugin's route whose requests another route takes, or that takes another's."""
    for at, route in enumerate(routes):
        for before in routes[:at]:
            if isinstance(route, DeclaredRoute) or isinstance(before, DeclaredRoute):
                _compare(before, route)


def _compare(first: Route, second: Route) -> None:
    methods = (first.methods or set()) & (second.methods or set()) - {"HEAD", "OPTIONS"}
    if not methods or not _is_taken(first, second):
        return
    path, method = second.path, min(methods)
    if isinstance(first, DeclaredRoute) and isinstance(second, DeclaredRoute):
        raise RouteCollision(
            f"{method} {path} is answered by {first.component} and by {second.component}; only the first would ever be "
            "asked: remove one of them, or use its other path",
            second.instance,
        )
    plugin = second if isinstance(second, DeclaredRoute) else first
    assert isinstance(plugin, DeclaredRoute)
    if plugin is first and plugin.declared.claims is not None and first.path == second.path:
        return  # what it does not claim is answered by Lens' own
    text = f"{method} {path} of {plugin.component} is a path of Lens' own; its plugin has to choose another"
    raise RouteCollision(text, plugin.instance)


def _is_taken(first: Route, second: Route) -> bool:
    """Whether the first route takes the requests of the second."""
    if _PARAMETER.sub("{}", first.path) == _PARAMETER.sub("{}", second.path):
        return True
    return "{" not in second.path and first.path_regex.match(second.path) is not None
