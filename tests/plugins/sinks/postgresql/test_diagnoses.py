"""Diagnosis reports: the newest of each node and type, once, whole."""

from __future__ import annotations

from typing import Any

from lens_core import Diagnosis, Origin, Pod, Rejected, WorkloadReference
from tests.plugins.sinks.postgresql.support import ORIGIN, Spool, ask


def report(number: int, /, *, origin: Origin = ORIGIN, **changes: Any) -> Diagnosis:
    fields: dict[str, Any] = {
        "data_type": "STACK_TRACE",
        "data_content": f"report {number}",
        "node_id": 4,
        "node_type": "worker",
        "node_rank": 2,
        "timestamp": 1_700_000_000.0 + number,
    }
    return Diagnosis(origin=origin, **{**fields, **changes})


async def test_what_is_stored_is_answered_oldest_first(store: Any, spool: Spool) -> None:
    await spool.deliver(report(2), report(1), report(3, data_type="XPU_TIMER_METRIC", data_content="a\x00b \U0001f600"))
    found = await store.diagnoses("workload-1")
    assert [(item.data_content, item.timestamp) for item in found[:2]] == [
        ("report 1", 1_700_000_001.0),
        ("report 2", 1_700_000_002.0),
    ]
    assert (found[2].data_content, found[2].node_id, found[2].node_rank) == ("a\ufffdb \U0001f600", 4, 2)
    assert len(await store.diagnoses("workload-1", data_type="STACK_TRACE")) == 2
    assert await store.diagnoses("another") == []


async def test_a_redelivery_adds_nothing(store: Any, spool: Spool) -> None:
    await spool.deliver(report(1))
    await spool.deliver(report(1))
    await Spool(store, "another-spool").deliver(report(1))
    assert len(await store.diagnoses("workload-1")) == 1


async def test_old_reports_make_room_node_by_node(store: Any, spool: Spool, postgres_dsn: str) -> None:
    await spool.deliver(*(report(number) for number in range(40)))
    await spool.deliver(*(report(number, node_rank=3) for number in range(5)))
    await spool.deliver(report(40))
    counts = ask(postgres_dsn, "select node_rank, count(*), max(content) from lens_diagnosis group by 1 order by 1")
    assert counts == [(2, 16, "report 40"), (3, 5, "report 4")]


async def test_a_pods_reports_are_its_workloads(store: Any, spool: Spool) -> None:
    pod = Origin(pod_uid="p-uid", pod_name="p-0", namespace="team")
    await spool.deliver(report(1, origin=pod))
    assert len(await store.diagnoses("p-uid")) == 1
    belongs = Pod(uid="p-uid", name="p-0", namespace="team", workloads=[WorkloadReference(uid="job-9", name="nine")])
    await spool.deliver(belongs)
    assert len(await store.diagnoses("job-9")) == 1


async def test_a_bad_report_loses_no_neighbour(store: Any, spool: Spool) -> None:
    answer = await spool.send(report(1), report(2, node_rank=2**40), report(3, origin=Origin()), report(4))
    assert isinstance(answer, Rejected)
    assert set(answer.items) == {1, 2}
    assert [item.data_content for item in await store.diagnoses("workload-1")] == ["report 1", "report 4"]
