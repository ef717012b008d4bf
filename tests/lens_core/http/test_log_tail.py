"""GET /workloads/{uid}/log-tail: of this daemon's memory, and what the store has of the last trouble."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lens_core import Diagnosis, LogLine, Origin, Pod, WorkloadReference
from lens_core.detection.log_lines.log_tails import LogTail, LogTails, TailLine
from lens_core.model.records import LOG_TAIL
from lens_core.plugin_api.siblings import SiblingAnswers, Siblings
from tests.lens_core.http.query_app import QueryApp, running_app
from tests.plugins.sinks.postgresql.support import row


def feed(tails: LogTails, *lines: LogLine) -> None:
    tails.append_lines(
        lines,
        lambda origin: (origin.workload_uid, origin.pod_uid, str(origin.rank)),
        lambda origin: [origin.workload_uid or origin.pod_uid],
        1.0,
    )


def stored(at: float, *texts: str, rank: int = 0, uid: str = "job") -> Diagnosis:
    tail = LogTail(
        rank=rank,
        node="n1",
        pod_name="p",
        container="",
        stream="stdout",
        has_cause=True,
        lines=[TailLine(1000, text) for text in texts],
    )
    content = msgspec.json.encode(tail).decode()
    return Diagnosis(origin=Origin(workload_uid=uid), data_type=LOG_TAIL, data_content=content, timestamp=at)


async def answer(asked: QueryApp, uid: str = "job", **parameters: Any) -> list[tuple[bool, list[str]]]:
    found = await asked.json(f"/workloads/{uid}/log-tail", **parameters)
    return [(one["is_live"], [line["text"] for line in one["lines"]]) for one in found["streams"]]


@pytest.fixture
def tails(asked: QueryApp) -> LogTails:
    tails = LogTails()
    asked.state.log_tails = [tails]
    return tails


async def test_live_lines_of_a_workload_and_of_its_pods(asked: QueryApp, tails: LogTails) -> None:
    await asked.spool.deliver(
        row(1, origin=Origin(workload_uid="job")),
        Pod(uid="u1", name="p1", namespace="ns", workloads=[WorkloadReference(uid="job")]),
    )
    feed(tails, LogLine(origin=Origin(workload_uid="job", rank=0), text="token=abcdefgh", event_time=2.0))
    feed(tails, LogLine(origin=Origin(pod_uid="u1", pod_name="p1", namespace="ns", rank=1), text="by pod"))
    feed(tails, LogLine(origin=Origin(workload_uid="another"), text="of another"))
    assert await answer(asked) == [(True, ["by pod"]), (True, ["token=***"])]
    assert await answer(asked, rank=1) == [(True, ["by pod"])]
    assert await answer(asked, "another") == [(True, ["of another"])]
    assert await answer(asked, limit=1) == [(True, ["by pod"])]
    assert await answer(asked, cluster="elsewhere") == []
    assert await answer(asked, "nobody") == []


async def test_secrets_are_looked_for_beside_the_event_loop_and_hold_no_log_up(
    asked: QueryApp, tails: LogTails, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[bool, bool]] = []

    def redact_lines(lines: Iterable[str]) -> Iterable[str]:
        found.append((threading.current_thread() is threading.main_thread(), tails._lock.locked()))
        return lines

    monkeypatch.setattr("lens_core.detection.log_lines.log_tails.redact_lines", redact_lines)
    feed(tails, LogLine(origin=Origin(workload_uid="job"), text="one"))
    assert await answer(asked) == [(True, ["one"])]
    assert found == [(False, False)]


async def test_stored_lines_of_the_last_trouble_where_this_daemon_has_none(asked: QueryApp, tails: LogTails) -> None:
    await asked.spool.deliver(row(1, origin=Origin(workload_uid="job")), stored(50.0, "an old failure"))
    await asked.spool.deliver(stored(100.0, "Traceback", "OOM"), stored(100.0, "peer lost", rank=1))
    found = await answer(asked)
    assert sorted(found) == [(False, ["Traceback", "OOM"]), (False, ["peer lost"])]
    diagnosis = await asked.json("/workloads/job/diagnosis")
    assert (diagnosis["nodes"], diagnosis["stacks"]) == ([], []), "no report of a collector"
    origin = Origin(workload_uid="job", rank=0, pod_name="p", node="n1")
    feed(tails, LogLine(origin=origin, text="again", stream="stdout"))
    assert sorted(await answer(asked)) == [(False, ["peer lost"]), (True, ["again"])]


class Sibling(Siblings):
    """The other daemon of a cluster, which owns the job."""

    def __init__(self) -> None:
        self.answers: list[Callable[[bytes], Awaitable[bytes]]] = []

    async def ask_siblings(self, question: bytes = b"", *, seconds: float = 2.0) -> SiblingAnswers:
        newer = msgspec.msgpack.encode({"streams": []})
        return SiblingAnswers({"other": await self.answers[0](question), "newer": newer}, ["silent"])

    def answer_siblings(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        self.answers.append(answer)


async def test_the_owner_of_the_job_is_asked(tmp_path: Path, postgres_dsn: str) -> None:
    """Two routes over one store: the first has the lines, the second asks it."""
    tails, between = LogTails(), Sibling()
    async with running_app(tmp_path, postgres_dsn, siblings_of=lambda kind: between) as asked:
        asked.state.log_tails = [tails]
        feed(tails, LogLine(origin=Origin(workload_uid="job", rank=0), text="of the owner"))
        asked.state.log_tails, owner = [], asked.state.log_tails
        assert await answer(asked) == []
        asked.state.log_tails = owner
        found = await answer(asked)
        assert found == [(True, ["of the owner"])], "its own and the sibling's are one"
        silent = (await asked.json("/workloads/job/log-tail"))["silent"]
        assert silent == ["silent", "newer (its answer has another format; it is of another version)"]


async def test_a_daemon_that_owned_the_job_before_answers_with_the_newer_lines(
    asked: QueryApp, tails: LogTails
) -> None:
    origin = Origin(workload_uid="job", rank=0)
    later = LogTails()
    feed(tails, LogLine(origin=origin, text="before", event_time=1.0))
    feed(later, LogLine(origin=origin, text="now", event_time=2.0))
    for kept in ([tails, later], [later, tails]):
        asked.state.log_tails = kept
        assert await answer(asked) == [(True, ["now"])]
