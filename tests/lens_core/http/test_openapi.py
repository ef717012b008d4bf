"""The OpenAPI document is valid and true: every route is asked for what the document says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import httpx
import msgspec
import openapi_spec_validator
import pytest
from msgspec import Meta
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.routing import Mount, Route

from lens_core import IngestRequest, Reply, Source
from lens_core import Route as PluginRoute
from lens_core.http import openapi_routes
from lens_core.http.app import build_app
from lens_core.http.openapi_routes import PARAMETERS
from lens_core.http.tokens import TokenStore
from lens_core.testing import LensFactory, RunningLens, check_source, make_context

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
    found: dict[str, Any] = await running.get_json("/openapi.json")
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and operation of everything in a document."""
    for path, entry in document["paths"].items():
        for method, operation in entry.items():
            yield method.upper(), path, operation


def query_names(operation: dict[str, Any]) -> set[str]:
    return {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"}


async def statuses(running: RunningLens, method: str, path: str, tokens: dict[str, str]) -> dict[str, int]:
    """Return the status for the token of each role; bodies are not read, because some never end."""
    url = running.url + path.replace("{", "").replace("}", "")
    found = {}
    async with httpx.AsyncClient(timeout=240) as client:
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
    tokens = {role: store.create_token(role, role) for role in ROLES}
    known = {name for _, _, operation in operations(document) for name in query_names(operation)}
    wrong = []
    for method, path, operation in operations(document):
        Noting.asked = set()
        answers = await statuses(running, method, path, tokens)
        (role,) = [role for entry in operation["security"] for role in entry["token"]] or [""]
        takes_logins = path in ("/login", "/logout")  # a token is no password
        if not takes_logins and {name for name, status in answers.items() if status not in (401, 403)} != ALLOWED[role]:
            wrong.append(f"{method} {path} is said to need {role or 'nothing'}: {answers}")
        said = query_names(operation)
        # Those of a plugin that reads all of them in their order are not seen; its own test chooses by it.
        unseen = {"match[]"} | ({"uid"} if path.endswith("/goodput") else set())
        unread, unsaid = said - Noting.asked - unseen, (Noting.asked & known) - said
        # All routes about points read the same parameters; a stream of new ones has no use for some.
        if unread or (unsaid and not path.endswith("/stream")):
            wrong.append(f"{method} {path}: never read {sorted(unread)}, not said {sorted(unsaid)}")
    assert wrong == []


def test_every_parameter_is_taken_somewhere() -> None:
    taken = {name for names in openapi_routes._QUERIES.values() for name in names}
    assert taken == set(PARAMETERS)
    assert all(parameter.description for parameter in PARAMETERS.values())


class Asked(msgspec.Struct):
    """The query of a plugin's route."""

    team: Annotated[str, Meta(description="whose rows")]
    tag: Annotated[list[str], Meta(description="only with these")] = []
    unit: Annotated[Literal["ms", "s"], Meta(description="of times")] = "s"


class Entry(msgspec.Struct):
    """Has the name of a type that a source of Lens declares."""

    step: int


class Described(Source):
    """Says what its route reads; and a mistake."""

    name = "described"

    def routes(self) -> Sequence[PluginRoute]:
        """One that can be described, and one with two types of which no JSON is made."""
        return [
            PluginRoute(paths=["/d"], handler=self._take, query=Asked, bodies={"application/json": list[Entry]}),
            PluginRoute(paths=["/wrong"], handler=self._take, bodies={"application/json": Path.read_text, "a/b": {}}),
        ]

    async def _take(self, request: IngestRequest) -> Reply:
        """Takes nothing."""
        return Reply()


async def test_a_plugins_route_is_described_as_it_says(lens: LensFactory, caplog: pytest.LogCaptureFixture) -> None:
    running = await lens(Described, config={"sources": {"described": {}, "logs": {}}})
    document = await document_of(running)
    openapi_spec_validator.validate(document)
    operation = document["paths"]["/api/v1/d"]["post"]
    found = {one["name"]: one for one in operation["parameters"] if one["in"] == "query"}
    assert found["team"] == {
        "name": "team",
        "in": "query",
        "description": "whose rows",
        "schema": {"type": "string"},
        "required": True,
    }
    assert found["tag"]["schema"] == {"type": "array", "items": {"type": "string"}, "default": []}
    assert found["unit"]["schema"]["enum"] == ["ms", "s"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    own = document["components"]["schemas"][schema["items"]["$ref"].rpartition("/")[2]]
    assert own["properties"] == {"step": {"type": "integer"}}, "not the Entry of somebody else"
    assert document["paths"]["/api/v1/wrong"]["post"]["requestBody"]["content"] == {
        "application/json": {"schema": {}},
        "a/b": {"schema": {}},
    }
    assert "has no JSON schema" in caplog.text


async def test_the_contract_check_finds_what_cannot_be_described(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"/wrong.*has no JSON schema"):
        await check_source(Described(None, make_context("described", tmp_path)), [])
