"""A source whose protocol has errors of its own: whatever is refused is answered in its words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lens_core import BadRequest, IngestRequest, Reply, Route, Source, StepMetrics
from lens_core.base.errors import RequestError
from tests.plugins.sources.ingest_app import IngestApp


def as_xml(error: RequestError, request: IngestRequest) -> Reply:
    """An error as this protocol has it."""
    if request.headers.get("x-broken"):
        raise ValueError("this cannot be put into words")
    text = f'<error code="{error.status}">{error.message}</error>'.encode()
    return Reply(body=text, status=error.status + 10, headers={"Content-Type": "text/xml"})


class Xml(Source):
    """Takes anything as a row; fails as it is told."""

    name = "xml"

    def routes(self) -> Sequence[Route]:
        """One route."""
        return [Route(paths=("/xml",), handler=self.receive, refusal=as_xml, max_body_bytes=100)]

    async def receive(self, request: IngestRequest) -> Reply:
        """Store, refuse or break."""
        if request.body == b"bad":
            raise BadRequest("this is no row")
        if request.body == b"break":
            raise ZeroDivisionError("the details of a bug")
        await self.gate.submit([StepMetrics(data_source="xml", row_step=1, values={"loss": 1.0})])
        return Reply(body=b"<fine/>")


@pytest.mark.parametrize(
    ("body", "encoding", "status", "text"),
    [
        (b"bad", "identity", 410, b'<error code="400">this is no row</error>'),
        (b"x" * 200, "identity", 423, b'<error code="413">'),
        (b"x", "lzma", 425, b'<error code="415">'),
        (b"break", "identity", 510, b'<error code="500">internal error'),
        (b"fine", "identity", 200, b"<fine/>"),
    ],
)
async def test_the_hosts_refusals_and_the_handlers_have_one_shape(
    tmp_path: Path, body: bytes, encoding: str, status: int, text: bytes
) -> None:
    app = IngestApp(Xml, tmp_path)
    answer = await app.post("/api/v1/xml", content=body, headers={"content-encoding": encoding})
    assert (answer.status_code, answer.content[: len(text)]) == (status, text)
    assert b"details of a bug" not in answer.content


async def test_a_full_spool_keeps_its_pause(tmp_path: Path) -> None:
    app = IngestApp(Xml, tmp_path)
    app.gate.closed = True
    answer = await app.post("/api/v1/xml", content=b"fine")
    assert (answer.status_code, answer.headers["retry-after"], b"the spool is full" in answer.content) == (
        513,
        "3",
        True,
    )


async def test_a_refusal_that_breaks_is_answered_by_the_host(tmp_path: Path) -> None:
    app = IngestApp(Xml, tmp_path)
    answer = await app.post("/api/v1/xml", content=b"bad", headers={"x-broken": "yes"})
    assert (answer.status_code, answer.json()["message"]) == (400, "this is no row")
