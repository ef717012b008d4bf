"""Any daemon answers for the whole cluster: status, live views, dead letters."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Answer, Batch, Delivered, LogLine, Origin, Rejected, Sink, StepMetrics
from lens_core.base.errors import TooManyRequests
from lens_core.cli import cli
from lens_core.cluster.connection import Connection
from lens_core.cluster.live import LiveQuestion, LiveRelay, make_news
from lens_core.cluster.peers import PIECE_BYTES, Peers
from lens_core.config.settings import ClusterSettings
from lens_core.daemon.cluster_status import STATUS
from lens_core.model.records import decode_envelope
from lens_core.pipeline.tap import Tap
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_cluster_road import row
from tests.waiting import until_answer


class Refusing(Sink):
    """Refuses every record until it is told otherwise."""

    name = "refusing"
    accepts = (StepMetrics,)
    refuses: ClassVar[bool] = True
    steps: ClassVar[list[int]] = []

    async def send(self, batch: Batch) -> Answer:
        if Refusing.refuses:
            return Rejected(dict.fromkeys(range(len(batch.records)), "not today"))
        Refusing.steps += [one.row_step for one in batch.records if isinstance(one, StepMetrics)]
        return Delivered()


def peers_of(lens: RunningLens) -> Peers:
    assert lens.daemon.assembly is not None
    assert lens.daemon.assembly.cluster is not None
    return lens.daemon.assembly.cluster.peers


async def two(daemons: Daemons, *args: Any) -> list[RunningLens]:
    """Two daemons that know each other."""
    both = [await daemons(*args), await daemons(*args)]
    for lens in both:
        cluster = lens.daemon.assembly and lens.daemon.assembly.cluster
        assert cluster
        await until(
            lambda cluster=cluster: len({one.address for one in cluster.membership.members.values()}) == 2,  # type: ignore[misc]
            "they know each other",
        )
    return both


async def test_the_status_of_any_daemon_is_that_of_the_cluster(daemons: Daemons) -> None:
    both = await two(daemons)
    for step in range(10):
        await both[step % 2].send([row(f"job-{step}", step)])

    async def sums(lens: RunningLens, **parameters: str) -> tuple[int, int]:
        status = await lens.get_json("/status", **parameters)
        received = sum(source["received"] for source in status["sources"])
        return received, sum(sink["ledger"]["delivered"] for one in status["pipelines"] for sink in one["sinks"])

    for lens in both:
        await until_answer(partial(sums, lens), lambda answer: answer == (10, 10))
    alone = [await sums(lens, scope="daemon") for lens in both]
    assert [received for received, _ in alone] == [5, 5]
    assert sum(delivered for _, delivered in alone) == 10
    shared = (await both[0].get_json("/status"))["shared"]
    assert set(shared["daemons"]) == {peers_of(lens).address for lens in both}
    assert shared["silent"] == []


async def test_a_daemon_that_does_not_answer_is_named_in_time(daemons: Daemons) -> None:
    both = await two(daemons)

    async def hang(question: bytes) -> bytes:
        await asyncio.sleep(3600)
        return question

    peers_of(both[1]).siblings_of(STATUS).answer_siblings(hang)
    began = asyncio.get_running_loop().time()
    status = await both[0].get_json("/status")
    assert asyncio.get_running_loop().time() - began < 10
    assert status["shared"]["silent"] == [peers_of(both[1]).address]
    shown = await asyncio.to_thread(
        CliRunner().invoke, cli, ["cluster", "status", "--url", both[0].url], catch_exceptions=False
    )
    assert f"does not answer: {peers_of(both[1]).address}" in shown.output
    doctor = await asyncio.to_thread(CliRunner().invoke, cli, ["doctor", "--url", both[0].url, "--json"])
    assert peers_of(both[1]).address in doctor.output


@contextlib.asynccontextmanager
async def events_of(lens: RunningLens, path: str) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    """The server-sent events of a route, from its first one on."""

    async def read(response: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
        name = ""
        async for text in response.aiter_lines():
            key, _, value = text.partition(": ")
            name = value if key == "event" else name
            if key == "data":
                yield name, msgspec.json.decode(value)

    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("GET", f"{lens.url}/api/v1{path}") as response,
    ):
        yield read(response)


async def test_a_live_view_shows_what_passes_through_the_other_daemon(daemons: Daemons) -> None:
    both = await two(daemons)
    async with events_of(both[0], "/tap?workload=job-*&kind=step_metrics") as events:
        assert (await anext(events))[0] == "hello"
        relay = both[0].daemon.tap.relay
        assert relay is not None
        forwarding = both[1].daemon.tap.relay._forwarding  # type: ignore[union-attr]
        await until(lambda: bool(forwarding), "the other sends what passes")
        for step in range(6):
            await both[1].send([row("job-1", step), row("other", step)])
        seen = []
        async for name, data in events:
            if name == "record":
                seen.append((data["origin"]["workload_uid"], data["row_step"]))
            if len(seen) == 6:
                break
    assert seen == [("job-1", step) for step in range(6)]
    async with events_of(both[0], "/changes") as events:
        assert (await anext(events))[0] == "hello"
        await until(lambda: len(forwarding) > 1, "the other is asked for changes, too")
        await both[1].send([row("fresh", 1)])
        async for name, data in events:
            if name == "changed" and "fresh" in data["workloads"]:
                break


async def test_a_daemon_with_too_many_live_views_remembers_nothing_of_those_it_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lens_core.pipeline.tap.MAX_LISTENERS", 0)
    connection = Connection(ClusterSettings(nats=["nats://nobody"]))
    peers = Peers(connection, list)
    relay = LiveRelay(connection, peers.siblings_of("live"), Tap())
    for number in range(3):
        question = msgspec.msgpack.encode(LiveQuestion(str(number), None))
        with pytest.raises(TooManyRequests):
            await peers._find_answer("live", question)
    assert (relay._asked_at, relay._forwarding) == ({}, {})


async def test_dead_letters_are_replayed_once_by_a_daemon_that_owns_nothing(daemons: Daemons) -> None:
    Refusing.refuses, Refusing.steps = True, []
    both = await two(daemons, {"sinks": {"r": {"type": "refusing"}}}, Refusing)
    await both[0].send([row(f"job-{step}", step) for step in range(8)])

    async def letters(lens: RunningLens) -> int:
        return int((await lens.get_json("/dead-letters"))["total_count"])

    for lens in both:
        await until_answer(partial(letters, lens), lambda answer: answer == 8)
    Refusing.refuses = False
    answer = await both[1].post("/replay", {})
    assert answer.json() == {"replayed": 8}
    await until(lambda: len(Refusing.steps) == 8, "all of them")
    assert sorted(Refusing.steps) == list(range(8))


async def text_of(lens: RunningLens, path: str) -> str:
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.get(f"{lens.url}{path}")
    assert answer.is_success, answer.text
    return answer.text


async def filename_of(lens: RunningLens, path: str) -> str:
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.get(f"{lens.url}{path}")
    return answer.headers["content-disposition"].partition("filename*=utf-8''")[2]


async def test_exports_and_federation_of_any_daemon_are_those_of_all(daemons: Daemons, postgres_dsn: str) -> None:
    sinks = {"store": {"type": "postgresql", "dsn": postgres_dsn}, "latest": {"type": "prometheus"}}
    both = await two(daemons, {"sinks": sinks, "store": "store"})
    for step in range(1, 9):
        await both[step % 2].send([row(f"job-中-{step}", step)])
    jobs = {f'workload_uid="job-中-{step}"' for step in range(1, 9)}
    texts = [
        await until_answer(partial(text_of, lens, "/federate"), lambda text: all(job in text for job in jobs))
        for lens in both
    ]
    assert texts[0] == texts[1]
    asked = await both[0].post("/exports", {"workload_uid": "job-中-1", "metrics": "all"})
    assert asked.status_code == 202, asked.text
    path = asked.json()["url"].removeprefix("/api/v1")
    found = await until_answer(partial(both[1].get_json, path), lambda found: found["state"] == "done")
    assert found == await both[0].get_json(path)
    assert (await both[1].get_json("/exports"))["total_count"] == 1
    files = [await text_of(lens, f"/api/v1{path}/file") for lens in both]
    assert files[0] == files[1] != ""
    names = [await filename_of(lens, f"/api/v1{path}/file") for lens in both]
    assert names == [f"job-{quote('中')}-1.csv"] * 2
    async with httpx.AsyncClient(timeout=30) as client:
        assert (await client.delete(f"{both[1].url}/api/v1{path}")).status_code == 204
        assert (await client.get(f"{both[0].url}/api/v1{path}")).status_code == 404


async def test_answers_of_any_size_come_whole(daemons: Daemons) -> None:
    both = await two(daemons)
    noise = secrets.token_bytes(3 * PIECE_BYTES + 1)

    async def answer(question: bytes) -> bytes:
        return noise[: int(question)]

    async def fail(question: bytes) -> bytes:
        raise ValueError("nothing")

    peers_of(both[1]).siblings_of("large").answer_siblings(answer)
    peers_of(both[1]).siblings_of("failing").answer_siblings(fail)
    name = peers_of(both[1]).address
    asking = peers_of(both[0])
    for size in (0, 1, PIECE_BYTES, len(noise)):
        found = await asking.siblings_of("large").ask_sibling(name, str(size).encode(), seconds=20)
        assert found == noise[:size]
    assert (await asking.siblings_of("failing").ask_siblings(seconds=20)).silent == [f"{name} (ValueError)"]
    asking._subject = "nobody-listens-here"
    assert (await asking.siblings_of("large").ask_siblings(seconds=0.2)).silent == [name]
    asking._subject = peers_of(both[1])._subject
    unknown = await asking.siblings_of("unknown").ask_siblings(seconds=20)
    assert unknown.silent == [f"{name} (nothing here answers unknown)"]


@given(sizes=st.lists(st.integers(0, 5000), max_size=20))
def test_news_come_in_pieces_that_a_message_holds(sizes: list[int]) -> None:
    lines = [LogLine(origin=Origin(workload_uid="job"), text="x" * size, event_time=1.0) for size in sizes]
    pieces = list(make_news("p", lines, 4000))
    assert all(len(piece.envelope) <= 4000 for piece in pieces)
    kept = [record for piece in pieces if piece.envelope for record in decode_envelope(piece.envelope).records]
    assert len(kept) + sum(piece.dropped for piece in pieces) == len(lines)
    assert kept == [one for one in lines if one in kept]
