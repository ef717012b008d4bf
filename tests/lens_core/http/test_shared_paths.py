"""A path that two sources share: one has it, the other claims some of its requests."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from lens_core import Context, IngestRequest, Reply, RequestError, Route, Source
from lens_core.base.self_metrics import SelfMetrics
from lens_core.http.app import build_app
from lens_core.http.collisions import RouteCollision
from lens_core.http.state import ApiState
from lens_core.http.tokens import TokenStore


class Owner(Source):
    name = "owner"

    def routes(self) -> list[Route]:
        return [Route(paths=["/shared"], handler=self._answer, encodings=("identity",), max_body_bytes=100)]

    async def _answer(self, request: IngestRequest) -> Reply:
        return Reply(body={"by": self.name})


class Claimer(Source):
    name = "claimer"

    def routes(self) -> list[Route]:
        return [
            Route(
                paths=["/shared"],
                handler=self._answer,
                encodings=("gzip", "identity"),
                max_body_bytes=1000,
                claims=lambda request: request.body.startswith(b"mine") or "x-mine" in request.headers,
                refusal=lambda error, request: Reply(body={"refused by": self.name}, status=error.status),
            )
        ]

    async def _answer(self, request: IngestRequest) -> Reply:
        if request.body == b"mine is wrong":
            raise RequestError("no")
        return Reply(body={"by": self.name})


def application(folder: Path, *kinds: type[Source]) -> Starlette:
    metrics = SelfMetrics()
    contexts = [
        Context(name=kind.name, logger=logging.getLogger("test"), data_dir=folder, metrics=metrics) for kind in kinds
    ]
    sources = [kind(kind.Settings(), context) for kind, context in zip(kinds, contexts, strict=True)]
    return build_app(
        ApiState(
            metrics=metrics,
            tokens=TokenStore(folder),
            directory=contexts[0].directory,
            sources=sources,
            status=dict,
            ready=str,
            replay=lambda sink: None,
        )
    )


async def post(app: Starlette, body: bytes, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://lens") as client:
        return await client.post(
            "/v1/shared", content=body, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )


@pytest.mark.parametrize("kinds", [(Owner, Claimer), (Claimer, Owner)])
async def test_each_request_goes_to_the_route_that_claims_it(kinds: tuple[type[Source], ...], tmp_path: Path) -> None:
    app = application(tmp_path, *kinds)
    assert (await post(app, b"anything")).json() == {"by": "owner"}
    assert (await post(app, b"mine")).json() == {"by": "claimer"}
    assert (await post(app, gzip.compress(b"mine"), content_encoding="gzip")).json() == {"by": "claimer"}
    assert (await post(app, b"mine is wrong")).json() == {"refused by": "claimer"}


async def test_what_cannot_be_read_is_refused_in_the_words_of_the_route_that_its_headers_tell(tmp_path: Path) -> None:
    app = application(tmp_path, Owner, Claimer)
    assert (await post(app, b"x" * 2000, x_mine="1")).json() == {"refused by": "claimer"}
    large = await post(app, b"x" * 2000)
    assert large.status_code == 413
    assert large.json()["code"] == "PayloadTooLarge"


async def test_without_an_owner_the_claiming_route_answers_everything(tmp_path: Path) -> None:
    assert (await post(application(tmp_path, Claimer), b"anything")).json() == {"by": "claimer"}


async def test_two_that_claim_nothing_still_collide(tmp_path: Path) -> None:
    class Second(Owner):
        name = "second"

    with pytest.raises(RouteCollision, match="owner"):
        application(tmp_path, Owner, Second)


class Beside(Source):
    """Claims requests of a path on which Lens itself answers a question of Grafana's."""

    name = "beside"

    def routes(self) -> list[Route]:
        return [
            Route(
                paths=["/tag-keys"],
                handler=self._answer,
                max_body_bytes=4 * 1024 * 1024,
                claims=lambda request: b'"mine"' in request.body,
            )
        ]

    async def _answer(self, request: IngestRequest) -> Reply:
        return Reply(body={"bytes": len(request.body)})


@pytest.mark.parametrize("prefix", ["/api/v1", "/v1"])
async def test_what_a_source_does_not_claim_is_a_question_to_lens(prefix: str, tmp_path: Path) -> None:
    transport = httpx.ASGITransport(application(tmp_path, Beside), client=("127.0.0.1", 1234))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://lens{prefix}") as client:
        answer = await client.post("/tag-keys", json={"mine": 1})
        assert answer.json() == {"bytes": len(answer.request.content)}
        large = b'{"mine": "' + b"x" * 3_000_000 + b'"}'
        assert (await client.post("/tag-keys", content=large)).json() == {"bytes": len(large)}
        packed = await client.post("/tag-keys", content=gzip.compress(large), headers={"Content-Encoding": "gzip"})
        assert packed.json() == {"bytes": len(large)}
        question = await client.post("/tag-keys", json={})
        assert isinstance(question.json(), list)
        refused = await client.post("/tag-keys", content=b"no JSON")
        assert (refused.status_code, refused.json()["code"]) == (400, "RequestParameterInvalid")
