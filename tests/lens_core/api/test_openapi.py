"""The OpenAPI document is valid and true: every route is asked for what the document says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import openapi_spec_validator
import pytest
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.routing import Mount, Route

from lens_core.api import openapi_routes
from lens_core.api.app import build_app
from lens_core.api.openapi_routes import PARAMETERS
from lens_core.testing import LensFactory, RunningLens
from lens_core.tokens import TokenStore

ROLES = ("ingest", "read", "admin")
ALLOWED = {"": {*ROLES}, "read": {"read", "admin"}, "ingest": {"ingest", "admin"}, "admin": {"admin"}}


class Noting(QueryParams):
    """Query parameters that note by which names they were asked."""

    asked: ClassVar[set[str]] = set()

    def get(self, key: Any, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def getlist(self, key: Any) -> list[str]:
        self.asked.add(key)
        return super().getlist(key)


@pytest.fixture
async def running(lens: LensFactory, monkeypatch: pytest.MonkeyPatch) -> RunningLens:
    """A daemon with every source, a store and a sink that has a route, and with Noting in its requests."""
    found = await lens(config={"sinks": {"series": {"type": "prometheus"}}}, store=True)
    monkeypatch.setattr(Request, "query_params", property(lambda self: Noting(self.scope["query_string"])))
    return found


async def document_of(running: RunningLens) -> dict[str, Any]:
    found: dict[str, Any] = await running.get("/openapi.json")
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and operation of everything in a document."""
    for path, entry in document["paths"].items():
        for method, operation in entry.items():
            yield method.upper(), path, operation


async def statuses(running: RunningLens, method: str, path: str, tokens: dict[str, str]) -> dict[str, int]:
    """What each role's token is answered; bodies are not read, because some never end."""
    url = running.url + path.replace("{", "").replace("}", "")
    found = {}
    async with httpx.AsyncClient(timeout=30) as client:
        for role, token in tokens.items():
            async with client.stream(method, url, headers={"Authorization": f"Bearer {token}"}) as answer:
                found[role] = answer.status_code
    return found


async def test_it_is_valid(running: RunningLens) -> None:
    document = await document_of(running)
    openapi_spec_validator.validate(document)
    silent = [
        f"{method} {path}" for method, path, operation in operations(document) if not operation["summary"].endswith(".")
    ]
    assert silent == [], "these endpoints have no docstring"


async def test_it_has_every_route_and_no_other(running: RunningLens) -> None:
    document = await document_of(running)
    assert running.daemon.assembly is not None
    served: set[str] = set()
    app = build_app(running.daemon._api_state(running.daemon.assembly))
    for route in app.routes:
        if isinstance(route, Mount) and route.path == "/api/v1":
            served |= {f"/api/v1{below.path}" for below in route.routes if isinstance(below, Route)}
        elif isinstance(route, Route):
            served.add(route.path)
    assert {path.replace(":path}", "}") for path in served} == set(document["paths"])


async def test_roles_and_parameters_are_what_the_routes_do(running: RunningLens) -> None:
    document = await document_of(running)
    store = TokenStore(running.daemon.config.data_dir)
    tokens = {role: store.create(role, role) for role in ROLES}
    wrong = []
    for method, path, operation in operations(document):
        Noting.asked = set()
        answers = await statuses(running, method, path, tokens)
        (role,) = [role for entry in operation["security"] for role in entry["token"]] or [""]
        takes_logins = path in ("/login", "/logout")  # a token is no password
        if not takes_logins and {name for name, status in answers.items() if status not in (401, 403)} != ALLOWED[role]:
            wrong.append(f"{method} {path} is said to need {role or 'nothing'}: {answers}")
        said = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}
        unread, unsaid = said - Noting.asked, (Noting.asked & set(PARAMETERS)) - said
        # All routes about points read the same parameters; a stream of new ones has no use for some.
        if unread or (unsaid and not path.endswith("/stream")):
            wrong.append(f"{method} {path}: never read {sorted(unread)}, not said {sorted(unsaid)}")
    assert wrong == []


def test_every_parameter_is_taken_somewhere() -> None:
    taken = {name for names in openapi_routes._QUERIES.values() for name in names}
    assert taken == set(PARAMETERS)
    assert all(parameter.description for parameter in PARAMETERS.values())
