"""The owner of a row is resolved by each query; order, times, paging, and the seed's own SQL."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lens_core import (
    BadRequest,
    Detection,
    Device,
    Event,
    Evidence,
    Origin,
    Pod,
    PointQuery,
    StepMetrics,
    WorkloadReference,
)
from tests.plugins.sinks.postgresql.support import ORIGIN, Spool, ask, points, row, running_store, times

POD = Origin(pod_uid="pod-uid-9", pod_name="trainer-9", namespace="team")
WORKLOADS = [
    WorkloadReference(uid="job", name="my-job", kind="PyTorchJob", namespace="team", parent_uid="top"),
    WorkloadReference(uid="top", name="my-workload", kind="Workload", namespace="team"),
]
MEMBERSHIP = Pod(uid="pod-uid-9", name="trainer-9", namespace="team", workloads=WORKLOADS)


async def test_membership_that_comes_later_finds_the_rows(spool: Spool, store: Any, postgres_dsn: str) -> None:
    await spool.deliver(row(0, origin=POD))
    assert await points(store, workload_uid="job") == []
    before = await store.version("job")
    await spool.deliver(MEMBERSHIP)
    for uid in ("job", "top", "pod-uid-9", "team/trainer-9", "trainer-9"):
        assert [p.iteration for p in await points(store, workload_uid=uid)] == [0], uid
    assert await store.version("job") != before
    assert (await store.workload("job")).summary.name == "my-job"
    assert [(w.workload_uid, w.name, w.rows) for w in (await store.workloads()).workloads] == [("job", "my-job", 1)]
    assert ask(postgres_dsn, "select workload_name from pod_cache where pod_name = 'trainer-9' order by 1") == [
        ("my-job",),
        ("my-workload",),
    ]


@pytest.mark.parametrize(
    "origin", [Origin(pod_name="trainer-9", namespace="team"), Origin(pod_name="trainer-9"), Origin(workload_uid="job")]
)
async def test_a_name_or_a_workload_is_enough(spool: Spool, store: Any, origin: Origin) -> None:
    await spool.deliver(MEMBERSHIP, row(0, origin=origin))
    assert len(await points(store, workload_uid="job")) == 1
    assert len(await points(store, workload_uid="top")) == 1


async def test_pods_of_one_name_in_two_namespaces_are_two(spool: Spool, store: Any) -> None:
    other = Origin(pod_name="trainer-9", namespace="another")
    await spool.deliver(MEMBERSHIP, row(0, origin=other))
    assert await points(store, workload_uid="job") == []
    assert len(await points(store, workload_uid="another/trainer-9")) == 1


async def test_a_workload_that_nobody_knows_is_empty(store: Any) -> None:
    assert await store.metric_sources("nobody") == []
    assert await store.available_metrics("nobody", "") == []
    assert await points(store, workload_uid="nobody") == []
    assert await times(store, workload_uid="nobody") == []
    assert await store.workload("nobody") is None
    assert await store.events("nobody") == []
    assert await store.evidence("nobody") == []
    assert await store.version("nobody") == "none"


async def test_points_come_by_metric_run_attempt_iteration(spool: Spool, store: Any) -> None:
    for run in ("b", "a"):
        for session in ("one", "two"):
            rows = [
                row(step, run_id=run, session=session, iteration=10 - step, values={"y": 1.0, "x": 2.0})
                for step in range(5)
            ]
            await spool.deliver(*rows)
    found = [(p.metric_name, p.run_id, p.attempt, p.iteration) for p in await points(store)]
    assert found == sorted(found)
    assert len(found) == 40
    assert {p.metric_name for p in await points(store, metrics=("x", "absent"))} == {"x"}
    assert await points(store, metrics=()) == []


async def test_times_are_inclusive_and_each_may_stand_alone(spool: Spool, store: Any) -> None:
    await spool.deliver(*(row(step, event_time=100.0 + step + 0.0005) for step in range(10)))
    assert [p.iteration for p in await points(store, start_ms=103_000, end_ms=105_000)] == [3, 4, 5]
    assert [p.iteration for p in await points(store, start_ms=108_000)] == [8, 9]
    assert [p.iteration for p in await points(store, end_ms=100_000)] == [0]
    assert await points(store, start_ms=10**30) == []
    assert len(await points(store, end_ms=10**30)) == 10


async def test_more_points_than_one_piece_are_read_in_order(spool: Spool, store: Any) -> None:
    await spool.deliver(*(row(step) for step in range(12_000)))
    assert [p.iteration for p in await points(store)] == list(range(12_000))


async def test_iteration_times(spool: Spool, store: Any) -> None:
    await spool.deliver(
        row(1, iteration=100, event_time=5.0, values={"loss": 1.0, "target_iteration": 900.0}),
        row(2, iteration=200, event_time=6.0, values={"loss": 1.0}),
    )
    assert [(p.metric_name, p.value, p.timestamp, p.iteration) for p in await times(store)] == [
        ("iteration", 100.0, 5000, 100),
        ("iteration", 200.0, 6000, 200),
        ("target_iteration", 900.0, 5000, 100),
    ]
    (run,) = (await store.workload("workload-1")).runs
    assert (run.target_iteration, run.last_iteration) == (900, 200)


async def test_workloads_in_pages_and_by_search(spool: Spool, store: Any) -> None:
    for number in range(7):
        origin = Origin(workload_uid=f"uid-{number}", pod_name=f"train_{number}", namespace="ns")
        await spool.deliver(row(0, origin=origin, event_time=1000.0 + number))
    seen: list[str] = []
    cursor = ""
    while True:
        page = await store.workloads(limit=3, cursor=cursor)
        seen += [w.workload_uid for w in page.workloads]
        cursor = page.next_cursor
        if not cursor:
            break
    assert seen == [f"uid-{number}" for number in range(6, -1, -1)]
    assert [w.workload_uid for w in (await store.workloads(search="TRAIN_3")).workloads] == ["uid-3"]
    assert (await store.workloads(search="%")).workloads == []
    with pytest.raises(BadRequest):
        await store.workloads(cursor="nonsense")


async def test_events_evidence_and_detections_are_kept_once(spool: Spool, store: Any, postgres_dsn: str) -> None:
    event = Event(origin=ORIGIN, type="checkpoint_saved", iteration=5, event_time=50.0, details={"path": "/c", "s": 1})
    evidence = Evidence(origin=ORIGIN, source="wandb", facts={"wandb": {"x": float("nan"), "y\x00": 1}}, run_id="r")
    opinion = Detection(
        workload_uid="workload-1",
        source="wandb",
        framework="primus",
        layer="wrapper",
        confidence=0.8,
        method="environment",
        event_time=9.0,
    )
    versions = [await store.version("workload-1")]
    for _ in range(2):
        await spool.deliver(event, evidence, opinion)
        versions.append(await store.version("workload-1"))
    assert len(set(versions)) == 3
    (stored,) = await store.events("workload-1")
    assert (stored.type, stored.timestamp, stored.iteration, stored.details) == (
        "checkpoint_saved",
        50_000,
        5,
        {"path": "/c", "s": 1},
    )
    (kept,) = await store.evidence("workload-1")
    assert kept["facts"] == {"wandb": {"x": "NaN", "y\ufffd": 1}}
    assert abs(kept["timestamp"] - time.time()) < 3600
    assert ask(postgres_dsn, "select workload_uid, framework, confidence from framework_detection") == [
        ("workload-1", "primus", 0.8)
    ]


async def test_a_workload_takes_the_first_name_that_its_job_gives(spool: Spool, store: Any) -> None:
    for step, name in enumerate(("", "llama", "", "later")):
        labels = {"training.kubeflow.org/job-name": name} if name else {}
        await spool.deliver(row(step, origin=Origin(workload_uid="slurm-17", labels=labels)))
        await spool.deliver(row(step, origin=Origin(workload_uid="w", pod_name=f"pod-{step}", labels=labels)))
        await spool.deliver(row(step, origin=Origin(workload_uid="x", pod_name="pod-0" if step else "")))
    names = [(await store.workload(uid)).summary.name for uid in ("slurm-17", "w", "x")]
    assert names == ["llama", "llama", "x"]


async def test_what_two_pods_say_alike_are_two_events_each_with_its_place(spool: Spool, store: Any) -> None:
    places = [
        Origin(cluster="default", workload_uid="workload-1", rank=rank, pod_name=f"trainer-{rank}", node="gpu-7")
        for rank in (0, 1)
    ]
    said = [Event(origin=origin, type="out_of_memory", event_time=50.0, data_source="log") for origin in places]
    for _ in range(2):
        await spool.deliver(*said)
    found = {(event.rank, event.pod_name, event.node) for event in await store.events("workload-1")}
    assert (len(await store.events("workload-1")), found) == (2, {(0, "trainer-0", "gpu-7"), (1, "trainer-1", "gpu-7")})
    exported = [r for records in [batch async for batch in store.export_records()] for r in records]
    assert [record.origin for record in exported if isinstance(record, Event)] == places


async def test_an_event_belongs_to_the_attempt_of_its_session(spool: Spool, store: Any) -> None:
    await spool.deliver(row(0, session="one"), row(0, session="two"))
    await spool.deliver(Event(origin=ORIGIN, type="stalled", data_source="wandb", run_id="run-1", session="two"))
    (event,) = await store.events("workload-1")
    assert event.attempt == 2


async def test_the_seeds_own_sql(spool: Spool, postgres_dsn: str) -> None:
    await spool.deliver(*(row(step, values={"loss": step / 10}) for step in range(100)))
    newest = ask(
        postgres_dsn,
        "SELECT iteration, performance->>'loss', serial, pod_uuid FROM training_performance"
        " WHERE workload_uid = %s AND data_source = %s ORDER BY iteration DESC LIMIT 1",
        "workload-1",
        "wandb",
    )
    assert newest == [(99, "9.9", 1, "pod-uid-1")]
    existing = ask(
        postgres_dsn,
        "SELECT performance FROM training_performance WHERE workload_uid = %s AND serial = %s AND iteration = %s",
        "workload-1",
        1,
        42,
    )
    assert existing == [
        (
            {
                "loss": 4.2,
                "source": "wandb",
                "run_id": "run-1",
                "step": 42,
                "created_at": "2023-11-14T22:14:02+00:00",
            },
        )
    ]
    columns = ask(
        postgres_dsn, "select column_name from information_schema.columns where table_name = 'training_performance'"
    )
    assert {
        "id",
        "workload_uid",
        "pod_uuid",
        "serial",
        "iteration",
        "data_source",
        "performance",
        "created_at",
    } <= {name for (name,) in columns}


async def test_the_pod_of_a_row_is_the_one_that_wrote_it(spool: Spool, postgres_dsn: str) -> None:
    ranks = [Origin(workload_uid="workload-1", pod_uid=f"pod-{rank}", rank=rank) for rank in range(2)]
    await spool.deliver(*(row(0, origin=origin) for origin in ranks))
    assert ask(postgres_dsn, "select rank, pod_uuid, workload_uid from training_performance order by 1") == [
        (0, "pod-0", "workload-1"),
        (1, "pod-1", "workload-1"),
    ]


async def test_a_reader_who_goes_away_gives_the_connection_back(spool: Spool, store: Any) -> None:
    await spool.deliver(*(row(step) for step in range(12_000)))
    for _ in range(10):
        pieces = store.metric_points(PointQuery(workload_uid="workload-1"))
        assert 0 < len(await anext(pieces)) <= 5000
        await pieces.aclose()
    assert len(await points(store)) == 12_000


async def test_workloads_that_changed_since_a_cursor(tmp_path: Path, postgres_dsn: str) -> None:
    """Whatever the times of what was written; a minute comes again, so that no commit in between is missed."""
    async with running_store(tmp_path, postgres_dsn) as store:
        spool = Spool(store)
        old = Origin(workload_uid="old")
        await spool.deliver(row(1, origin=old, event_time=1.0), row(2))
        changed, cursor = await store.changed_workloads("")
        assert sorted(changed) == ["old", "workload-1"]
        assert sorted((await store.changed_workloads(cursor))[0]) == ["old", "workload-1"]
        later = str(int(cursor) + 120_000_000)
        assert (await store.changed_workloads(later))[0] == []
        await spool.deliver(row(3, origin=old, event_time=2.0))  # its time is of long ago
        with pytest.raises(BadRequest):
            await store.changed_workloads("nonsense")
        async with store.database.writing() as connection:
            await connection.execute("update lens_subject set changed_us = changed_us - 7200000000")
        await spool.deliver(row(4, origin=old, event_time=3.0))
        assert (await store.changed_workloads(cursor))[0] == ["old"]


async def test_pods_are_answered_with_when_they_held_gpus(tmp_path: Path, postgres_dsn: str) -> None:
    running = Pod(
        uid="pod-1",
        name="trainer-0",
        namespace="team",
        node="n1",
        phase="Running",
        workloads=[WorkloadReference(uid="job-p", name="job")],
        devices=[Device(kind="gpu_id", id=str(n)) for n in range(4)],
    )
    async with running_store(tmp_path, postgres_dsn) as store:
        spool = Spool(store)
        await spool.deliver(msgspec.structs.replace(running, phase="Pending"))
        [waiting] = await store.pods("job-p")
        assert (waiting.uid, waiting.node, waiting.spans) == ("pod-1", "n1", [])
        await spool.deliver(running)
        await spool.deliver(msgspec.structs.replace(running, labels={"changed": "yes"}))
        await spool.deliver(msgspec.structs.replace(running, phase="Deleted"))
        await spool.deliver(running)  # a job that Slurm puts back into its queue starts again under its number
        [pod] = await store.pods("job-p")
        assert [(span.until is None, span.gpus) for span in pod.spans] == [(False, 4), (True, 4)]
        assert pod.spans[0].begin <= (pod.spans[0].until or 0) <= pod.spans[1].begin
        assert await store.pods("another") == []


async def test_a_stream_has_its_node_and_world_size(tmp_path: Path, postgres_dsn: str) -> None:
    origin = Origin(workload_uid="job-w", node="gpu-17", rank=3, world_size=64)
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(row(0, origin=origin), row(1, origin=origin))
        detail = await store.workload("job-w")
        assert detail is not None
        assert [(run.rank, run.node, run.world_size) for run in detail.runs] == [(3, "gpu-17", 64)]
        exported = [record async for records in store.export_records("job-w") for record in records]
        rows = [record for record in exported if isinstance(record, StepMetrics)]
        assert {(record.origin.node, record.origin.world_size) for record in rows} == {("gpu-17", 64)}
