"""The OpenAPI document: routes, and the schemas of their bodies.

The OpenAPI document, made from the routes themselves, so that it cannot drift.

Paths, methods, path parameters and summaries are the routes' own. What their endpoints read beyond that is declared by
plugins with their routes, and for Lens itself in `openapi_routes.py`; a test asks every route whether that is true.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from starlette.routing import Route

from ..plugin_api.components import Route as PluginRoute
from .openapi_routes import BODIES, PARAMETERS, PREFIX, query_of, role_of

logger = logging.getLogger("lens.openapi")

_TEMPLATE = "#/components/schemas/{name}"


def schemas_of(kinds: Iterable[Any]) -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """The schema of each type, and the named ones that they refer to.

    Types of the same name get longer names. A type that has no schema is said and has {}: a mistake of one author
    leaves everybody else's routes described.
    """
    able = [*dict.fromkeys(kind for kind in kinds if _has_schema(kind))]
    found, named = msgspec.json.schema_components(able, ref_template=_TEMPLATE)
    return dict(zip(able, found, strict=True)), named


def _has_schema(kind: Any) -> bool:
    try:
        hash(kind)
        msgspec.json.schema_components([kind])
    # ValueError: bounds that do not fit into 64 bits.
    except (TypeError, ValueError) as error:
        logger.warning("A type that a route declares has no JSON schema. type=%r error=%s", kind, error)
        return False
    return True


def schema_of(kind: Any, schemas: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    """Return the schema that `schemas_of` found for a type; {} for one that has no schema."""
    return schemas.get(kind, {}) if isinstance(kind, Hashable) else {}


def parameters_of(query: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    """The query parameters that a struct declares: one for each field; a list may be repeated."""
    references, named = schemas_of([query])
    schema = _resolved(references.get(query, {}), named)
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        told = _resolved(field, named)
        description = told.pop("description", "")
        yield parameter(name, description, told, required=name in required)


def _resolved(schema: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with what it refers to in place of the reference, its own words first."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return {**named.get(name, {}), **{key: value for key, value in schema.items() if key != "$ref"}}


def parameter(name: str, description: str, schema: Mapping[str, Any], *, required: bool = False) -> dict[str, Any]:
    """One query parameter as OpenAPI writes it."""
    found = {"name": name, "in": "query", "description": description, "schema": dict(schema)}
    return {**found, "required": True} if required else found


_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_DESCRIPTION = (
    "What every training job is doing. What is below /api/v1 is below /v1 too. From loopback no token is needed; "
    "a role in brackets is what a token must allow."
)


class Error(msgspec.Struct):
    """Why a request was refused."""

    code: str
    message: str


class DeclaredRoute(Route):
    """A route that a plugin declared; `declared` is what it said, `component` its instance with the plugin."""

    declared: PluginRoute
    component: str = ""
    instance: str = ""


def openapi_document(below: Sequence[Route], root: Sequence[Route]) -> dict[str, Any]:
    """The document for routes below `/api/v1` and routes at the root."""
    paths: dict[str, Any] = {}
    types, schemas = schemas_of(_kinds([*below, *root]))
    for prefix, routes in ((PREFIX, below), ("", root)):
        for route in sorted(routes, key=_is_claiming):
            entry = paths.setdefault(prefix + _bare(route), {})
            for method in sorted((route.methods or set()) - {"HEAD"}):
                # Starlette takes the first route that matches; so does the document.
                operation = _operation(route, prefix, method, types)
                if entry.setdefault(method.lower(), operation) is not operation and _is_claiming(route):
                    _append_bodies(entry[method.lower()], operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lens", "version": "1", "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _is_claiming(route: Route) -> bool:
    """Whether a route only answers what it claims of a path: the path is described as that of the other."""
    return isinstance(route, DeclaredRoute) and route.declared.claims is not None


def _append_bodies(operation: dict[str, Any], claiming: Mapping[str, Any]) -> None:
    """Add the content types that a route claims to those of the path."""
    content = operation.setdefault("requestBody", {"required": True, "content": {}})["content"]
    for media_type, schema in claiming.get("requestBody", {}).get("content", {}).items():
        content.setdefault(media_type, schema)


def _kinds(routes: Iterable[Route]) -> Iterator[Any]:
    """Every type of which a body or an answer is made."""
    yield from (Error, *BODIES.values())
    for route in routes:
        if isinstance(route, DeclaredRoute):
            yield from (kind for kind in route.declared.bodies.values() if kind is not bytes)


def _bare(route: Route) -> str:
    return _PARAMETER.sub(r"{\1}", route.path)


def _operation(route: Route, prefix: str, method: str, types: Mapping[Any, Any]) -> dict[str, Any]:
    error = {"content": {"application/json": {"schema": types[Error]}}}
    declared = route.declared if isinstance(route, DeclaredRoute) else None
    path = _bare(route)
    role = declared.role if declared else role_of(method, prefix + path)
    summary, _, more = (inspect.getdoc(route.endpoint) or route.name).partition("\n\n")
    operation: dict[str, Any] = {
        "summary": " ".join(summary.split()),
        "parameters": [
            *_path_parameters(route.path),
            *_query_parameters(declared, method, path),
            *_encodings(declared),
        ],
        "responses": {"2XX": {"description": "OK"}, "default": {"description": "Refused, and why", **error}},
        "security": [{"token": [role]}] if role else [],
    }
    if more:
        operation["description"] = " ".join(more.split())
    if body := _request_body(declared, method, path, types):
        operation["requestBody"] = body
    return operation


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(declared: PluginRoute | None, method: str, path: str) -> Iterator[dict[str, Any]]:
    if declared is not None:
        yield from parameters_of(declared.query) if declared.query else ()
        return
    for name in query_of(method, path):
        yield parameter(name, PARAMETERS[name].description, PARAMETERS[name].schema)


def _encodings(declared: PluginRoute | None) -> Iterator[dict[str, Any]]:
    if declared is not None and "GET" not in declared.methods:
        schema = {"type": "string", "enum": [*declared.encodings]}
        yield {"name": "Content-Encoding", "in": "header", "description": "how the body is packed", "schema": schema}


def _request_body(
    declared: PluginRoute | None, method: str, path: str, types: Mapping[Any, Any]
) -> dict[str, Any] | None:
    if declared is None:
        kind = BODIES.get((method, path))
        bodies: Mapping[str, Any] = {"application/json": kind} if kind else {}
    else:
        bodies = (declared.bodies or {"*/*": bytes}) if method in ("POST", "PUT", "PATCH") else {}
    content = {media_type: {"schema": schema_of(kind, types)} for media_type, kind in bodies.items()}
    return {"required": True, "content": content} if content else None
