"""The OpenAPI document, made from the routes themselves, so that it cannot drift.

Paths, methods, path parameters and summaries are the routes' own; what their endpoints read beyond that is declared in
`openapi_routes.py`, and a test asks every route whether that is true.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from starlette.routing import Route

from ..plugin_api import Route as PluginRoute
from .openapi_routes import BODIES, PARAMETERS, PREFIX, query_of, role_of

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_DESCRIPTION = (
    "What every training job is doing. What is below /api/v1 is below /v1 too. From loopback no token is needed; "
    "a role in brackets is what a token must allow."
)
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
}


class DeclaredRoute(Route):
    """A route that a plugin declared; `declared` is what it said."""

    declared: PluginRoute


def openapi_document(below: Iterable[Route], root: Iterable[Route]) -> dict[str, Any]:
    """The document for routes below `/api/v1` and routes at the root."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {"Error": _ERROR_SCHEMA}
    for prefix, routes in ((PREFIX, below), ("", root)):
        for route in routes:
            entry = paths.setdefault(prefix + _bare(route), {})
            for method in sorted((route.methods or set()) - {"HEAD"}):
                # Starlette takes the first route that matches; so does the document.
                entry.setdefault(method.lower(), _operation(route, prefix, method, schemas))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lens", "version": "1", "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _bare(route: Route) -> str:
    return _PARAMETER.sub(r"{\1}", route.path)


def _operation(route: Route, prefix: str, method: str, schemas: dict[str, Any]) -> dict[str, Any]:
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    declared = route.declared if isinstance(route, DeclaredRoute) else None
    path = _bare(route)
    role = declared.role if declared else role_of(method, prefix + path)
    summary, _, more = (inspect.getdoc(route.endpoint) or route.name).partition("\n\n")
    operation: dict[str, Any] = {
        "summary": " ".join(summary.split()),
        "parameters": [*_path_parameters(route.path), *_query_parameters(method, path), *_encodings(declared)],
        "responses": {"2XX": {"description": "OK"}, "default": {"description": "Refused, and why", **error}},
        "security": [{"token": [role]}] if role else [],
    }
    if more:
        operation["description"] = " ".join(more.split())
    if body := _body(route, method, path, schemas):
        operation["requestBody"] = body
    return operation


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(method: str, path: str) -> Iterator[dict[str, Any]]:
    for name in query_of(method, path):
        parameter = PARAMETERS[name]
        yield {"name": name, "in": "query", "description": parameter.description, "schema": dict(parameter.schema)}


def _encodings(declared: PluginRoute | None) -> Iterator[dict[str, Any]]:
    if declared is not None and "GET" not in declared.methods:
        schema = {"type": "string", "enum": [*declared.encodings]}
        yield {"name": "Content-Encoding", "in": "header", "description": "how the body is packed", "schema": schema}


def _body(route: Route, method: str, path: str, schemas: dict[str, Any]) -> dict[str, Any] | None:
    kind = BODIES.get((method, path))
    if kind is not None:
        (reference,), found = msgspec.json.schema_components([kind], ref_template="#/components/schemas/{name}")
        schemas.update(found)
        return {"required": True, "content": {"application/json": {"schema": reference}}}
    if isinstance(route, DeclaredRoute) and method in ("POST", "PUT", "PATCH"):
        return {"required": True, "content": {"*/*": {"schema": {}}}}
    return None


__all__ = ["PREFIX", "DeclaredRoute", "openapi_document"]
