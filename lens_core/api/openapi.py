"""The OpenAPI document, made from the routes themselves, so that it cannot drift."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from starlette.routing import Route

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

ERROR_SCHEMA = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
}


def openapi_document(below: Iterable[Route], root: Iterable[Route]) -> dict[str, Any]:
    """The document for routes below `/api/v1` and routes at the root."""
    paths: dict[str, Any] = {}
    for prefix, routes in (("/api/v1", below), ("", root)):
        for route in routes:
            path = prefix + _PARAMETER.sub(r"{\1}", route.path)
            entry = paths.setdefault(path, {})
            for method in sorted((route.methods or set()) - {"HEAD"}):
                entry[method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lens", "version": "1", "description": "What every training job is doing."},
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    return {
        "summary": inspect.getdoc(route.endpoint) or route.name,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(route.path)
        ],
        "responses": {"200": {"description": "OK"}, "default": {"description": "Refused, and why", **error}},
    }
