"""DELETE at any daemon holds for all of them: what waits in the log of a deleted workload reaches no sink."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Answer, Batch, Delivered, LogLine, Origin, Pod, Retry, Sink, StepMetrics, WorkloadReference
from lens_core.cluster.erasures import PODS_PER_MARK, split_erasure
from lens_core.delivery.erasure import Erasure, PodName
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.cluster_fleet import line
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_cluster_road import row
from tests.waiting import until_answer

# A batch that was on its way when a lease was lost is stored again.
LEASE_SECONDS = 6.0


class Gate(Sink):
    """Answers Retry until it is opened, then keeps what it gets."""

    name = "gate"
    accepts = (StepMetrics, LogLine)
    is_open: ClassVar[bool] = False
    records: ClassVar[list[StepMetrics | LogLine]] = []

    async def send(self, batch: Batch) -> Answer:
        if not Gate.is_open:
            return Retry("not yet", after_seconds=0.05)
        Gate.records += [one for one in batch.records if isinstance(one, StepMetrics | LogLine)]
        return Delivered()

    @classmethod
    def jobs(cls) -> set[str]:
        return {one.origin.workload_uid for one in cls.records}

    @classmethod
    def steps_of(cls, uid: str) -> list[int]:
        rows = [one for one in cls.records if isinstance(one, StepMetrics)]
        return sorted(row.row_step for row in rows if row.origin.workload_uid == uid)


def with_gate(dsn: str) -> dict[str, Any]:
    return {"sinks": {"store": {"type": "postgresql", "dsn": dsn}, "g": {"type": "gate"}}, "store": "store"}


async def delete(lens: RunningLens, path: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        return await client.delete(f"{lens.url}/api/v1/workloads/{path}")


async def workloads_at(lens: RunningLens) -> set[str]:
    return {one["workload_uid"] for one in (await lens.get_json("/workloads"))["workloads"]}


async def wait_for_workloads(lens: RunningLens, wanted: set[str]) -> None:
    await until_answer(lambda: workloads_at(lens), lambda found: found == wanted)


async def test_what_waits_of_a_deleted_workload_is_sent_by_no_daemon(daemons: Daemons, postgres_dsn: str) -> None:
    Gate.is_open, Gate.records = False, []
    both = [await daemons(with_gate(postgres_dsn), Gate), await daemons(with_gate(postgres_dsn), Gate)]
    for step in range(1, 7):
        await both[step % 2].send([row("other", step), row("gone", step), line(step)])
    await wait_for_workloads(both[0], {"other", "gone", "job"})
    answers = [await delete(both[0], "gone"), await delete(both[1], "job")]
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    assert answers[0].json()["waiting_removed"] == 6, "for the gate, which had none of them"
    assert await workloads_at(both[1]) == {"other"}
    assert (await delete(both[1], "gone")).status_code == 404
    late = await daemons(with_gate(postgres_dsn), Gate)  # knows the marks of before its time
    await both[1].send([row("gone", 99)])
    Gate.is_open = True
    await until(
        lambda: Gate.steps_of("other") == list(range(1, 7)) and "gone" in Gate.jobs(), "what waits, and what came"
    )
    assert Gate.steps_of("gone") == [99]
    assert "job" not in Gate.jobs()
    await wait_for_workloads(late, {"other", "gone"})


async def test_a_deleted_workload_is_forgotten_by_the_directories_and_detectors_of_all(
    daemons: Daemons, postgres_dsn: str
) -> None:
    Gate.is_open, Gate.records = True, []
    both = [await daemons(with_gate(postgres_dsn), Gate), await daemons(with_gate(postgres_dsn), Gate)]
    pod = Pod(
        uid="p1",
        name="trainer-0",
        namespace="team",
        phase="Running",
        workloads=[WorkloadReference(uid="job", name="job")],
    )
    both[0].daemon.directory.record_pods([pod])
    await until(lambda: bool(both[1].daemon.directory.pods()), "both know the pod")
    for step in range(1, 4):
        await both[step % 2].send([line(step)])
    await wait_for_workloads(both[0], {"job"})
    assert (await delete(both[0], "job")).status_code == 200
    for lens in both:
        assert not any(one.workloads for one in lens.daemon.directory.pods())
    await both[1].send([line(2)])
    await wait_for_workloads(both[1], {"job"})
    found = await until_answer(
        lambda: both[0].get_json("/workloads/job/metrics/data", metrics="lm_loss"), lambda found: found["data"]
    )
    assert [(one["iteration"], one["attempt"]) for one in found["data"]] == [(2, 1)], "a job that begins anew"


async def test_a_daemon_that_does_not_answer_is_named_and_the_mark_holds_all_the_same(
    daemons: Daemons, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Gate.is_open, Gate.records = False, []
    monkeypatch.setattr("lens_core.daemon.erasing.SETTLE_SECONDS", 3.0)
    both = [await daemons(with_gate(postgres_dsn), Gate), await daemons(with_gate(postgres_dsn), Gate)]
    await both[0].send([row("gone", 1), row("other", 1)])
    await wait_for_workloads(both[0], {"gone", "other"})
    clusters = [lens.daemon.assembly.cluster for lens in both if lens.daemon.assembly is not None]
    first, second = clusters
    assert first is not None
    assert second is not None
    await until(lambda: len(first.membership.members) == 2, "they know each other")
    second.peers._answering.clear()
    answer = await delete(both[0], "gone")
    assert answer.status_code == 503
    assert second.peers.address in answer.text
    assert "retry-after" in answer.headers
    await until(lambda: bool(second.pipelines[0].marks.current), "it finds the mark by itself")
    Gate.is_open = True
    await until(lambda: "other" in Gate.jobs(), "the other workload is sent")
    assert "gone" not in Gate.jobs()


@given(count=st.integers(0, 3 * PODS_PER_MARK), run=st.none() | st.just("r"))
def test_an_erasure_in_pieces_covers_the_same(count: int, run: str | None) -> None:
    pods = [PodName(f"p{number}", "", "") for number in range(count)]
    whole = Erasure(workload_uids=["job"], pods=pods, run_id=run, last_batch=7)
    pieces = split_erasure(whole)
    assert [pod for piece in pieces for pod in piece.pods] == pods
    assert {(tuple(one.workload_uids), one.run_id, one.last_batch) for one in pieces} == {(("job",), run, 7)}
    assert all(len(msgspec.json.encode(piece)) < 512 * 1024 for piece in pieces)
    last = Origin(pod_uid=f"p{count - 1}")
    assert any(piece.is_origin(last) for piece in pieces) == whole.is_origin(last)


async def test_last_lines_of_moved_partitions_are_shown_until_they_are_deleted(
    daemons: Daemons, postgres_dsn: str, cluster_settings: dict[str, Any]
) -> None:
    # A daemon that is late on a busy machine would give its partitions up, and not give them away.
    patient = {**cluster_settings, "lease_seconds": 10}
    config = {"cluster": patient, "sinks": {"store": {"type": "postgresql", "dsn": postgres_dsn}}, "store": "store"}
    first = await daemons(config)
    jobs = [f"silent-{number}" for number in range(8)]
    for job in jobs:
        await first.send([LogLine(origin=Origin(workload_uid=job), text=f"last of {job}", event_time=1.0)])
        await first.send([row(job, 1)])
    await wait_for_workloads(first, set(jobs))
    second = await daemons(config)
    await until(lambda: len(works_of(second)) == 2, "two partitions have moved")
    for lens in (first, second):
        for job in jobs:
            (stream,) = (await lens.get_json(f"/workloads/{job}/log-tail"))["streams"]
            assert [one["text"] for one in stream["lines"]] == [f"last of {job}"]
    for job in jobs:
        await until_answer(partial(delete, second, job), lambda answer: answer.status_code == 200)
    for lens in (first, second):
        for job in jobs:
            assert (await lens.get_json(f"/workloads/{job}/log-tail"))["streams"] == []


def works_of(lens: RunningLens) -> dict[int, Any]:
    assert lens.daemon.assembly is not None
    assert lens.daemon.assembly.cluster is not None
    return lens.daemon.assembly.cluster.pipelines[0].works
