"""The discovery answers of an API server: its version, its resources, and that it validates fields."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.deploy.cluster.objects import RESOURCES, VERSION, Object, Resource

_PATHS = sorted({resource.path for resource in RESOURCES})
_SCHEMAS = "/openapi/v3"


def discovery_routes() -> list[Route]:
    """Routes for what clients ask before they ask for an object."""
    answers = {"/version": _version(), "/api": {"kind": "APIVersions", "versions": ["v1"]}, "/apis": _groups()}
    answers |= {path: _resources(path) for path in _PATHS}
    answers[_SCHEMAS] = {"paths": {path[1:]: {"serverRelativeURL": _SCHEMAS + path} for path in _PATHS}}
    answers |= {_SCHEMAS + path: _schema(path) for path in _PATHS}

    async def answer(request: Request) -> Response:
        return JSONResponse(answers[request.url.path])

    return [Route(path, answer) for path in answers]


def _version() -> Object:
    major, minor = VERSION.split(".")
    return {"major": major, "minor": minor, "gitVersion": f"v{VERSION}.0"}


def _groups() -> Object:
    found: list[Object] = []
    for path in _PATHS:
        _, _, version = path.partition("/apis/")
        if version:
            name, _, number = version.partition("/")
            one = {"groupVersion": version, "version": number}
            found.append({"name": name, "versions": [one], "preferredVersion": one})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def _of(path: str) -> list[Resource]:
    return [resource for resource in RESOURCES if resource.path == path]


def _resources(path: str) -> Object:
    verbs = ["create", "get", "list", "patch", "update"]
    told = [
        {"name": one.plural, "singularName": "", "kind": one.kind, "namespaced": one.namespaced, "verbs": verbs}
        for one in _of(path)
    ]
    version = _of(path)[0].version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": told}


def _schema(path: str) -> Object:
    """No schemas: only that each PATCH takes `fieldValidation`, so that clients leave the checking to the server."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v{VERSION}.0"},
        "paths": {f"{path}/{one.plural}/{{name}}": {"patch": _patch(one)} for one in _of(path)},
    }


def _patch(resource: Resource) -> dict[str, Any]:
    group, _, version = resource.version.rpartition("/")
    kind = {"group": group, "version": version, "kind": resource.kind}
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    return {"parameters": [parameter], "responses": {}, "x-kubernetes-group-version-kind": kind}
