"""Deletion of a workload or a run: what waits for a sink and its dead letters go, everything else arrives once."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import BatchLimits, Delivered, Event, Origin, Pod, Poisoned, Rejected, Retry, StepMetrics
from lens_core.base.errors import Unavailable
from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.erasure import Erasure, PodName
from lens_core.delivery.sending.policy import DeliverySettings
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.model.records import Record, WorkloadReference
from lens_core.pipeline.pipeline import Pipeline
from lens_core.testing.waiting import until
from tests.generated import examples
from tests.lens_core.delivery.test_sender import AT_ONCE, Scripted, rows

WORKLOADS = ("a", "b")
RUNS = ("", "r1")
PATIENT = DeliverySettings(send_timeout_seconds=60.0)
GONE = Erasure(workload_uids=["a"])


def row(step: int, workload: str = "a", run_id: str = "") -> StepMetrics:
    origin = Origin(workload_uid=workload, pod_uid=f"pod-{workload}", pod_name="p", namespace="n")
    return StepMetrics(origin=origin, data_source="wandb", row_step=step, run_id=run_id, values={"x": 1.0})


def pipeline_of(
    path: Path | None, sink: Scripted, limits: BatchLimits, delivery: DeliverySettings = AT_ONCE
) -> Pipeline:
    slot = SinkSlot(name="out", sink=sink, delivery=delivery, limits=limits)
    return Pipeline("p", Spool(path), [slot], metrics=SelfMetrics())


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(WORKLOADS), st.sampled_from(RUNS)), min_size=1, max_size=6), max_size=8
    ),
    st.lists(st.tuples(st.sampled_from(WORKLOADS), st.sampled_from(RUNS)), max_size=4),
    st.sampled_from([None, *RUNS]),
    st.integers(1, 8),
    st.booleans(),
    st.booleans(),
)
def test_exactly_what_was_deleted_is_missing(
    before: list[list[tuple[str, str]]],
    after: list[tuple[str, str]],
    run_id: str | None,
    at_once: int,
    restarts: bool,
    has_bad_ones: bool,
) -> None:
    asyncio.run(_deleted_is_missing(before, after, run_id, at_once, restarts, has_bad_ones))


async def _deleted_is_missing(
    before: list[list[tuple[str, str]]],
    after: list[tuple[str, str]],
    run_id: str | None,
    at_once: int,
    restarts: bool,
    has_bad_ones: bool,
) -> None:
    """Rows are numbered; every fifth is poison or refused, the sink is away until rows were deleted."""
    stored: Counter[int] = Counter()
    is_open = False

    async def judge(batch: object) -> object:
        records: Sequence[StepMetrics] = batch.records  # type: ignore[attr-defined]
        if not is_open:
            return Retry("away")
        if has_bad_ones and any(record.row_step % 5 == 4 for record in records):
            return Poisoned("bad")
        refused = {i: "no" for i, record in enumerate(records) if has_bad_ones and record.row_step % 5 == 3}
        stored.update(record.row_step for i, record in enumerate(records) if i not in refused)
        return Rejected(refused) if refused else Delivered()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite3" if restarts else None
        limits = BatchLimits(max_records=at_once, max_wait_seconds=0.001)
        pipeline = pipeline_of(path, Scripted(judge), limits)
        await pipeline.start()
        expected: set[int] = set()
        number = 0
        erasure = Erasure(workload_uids=["a"], run_id=run_id)
        erased = 0
        for batch in before:
            made = []
            for workload, run in batch:
                made.append(row(number, workload, run))
                if erasure.covers(made[-1]):
                    erased += 1
                else:
                    expected.add(number)
                number += 1
            await pipeline.submit(made)
        assert (await pipeline.erase_records(erasure, 10)).waiting == erased
        if restarts:
            await pipeline.stop(0.0)
            pipeline = pipeline_of(path, Scripted(judge), limits)
            await pipeline.start()
        for workload, run in after:
            await pipeline.submit([row(number, workload, run)])
            expected.add(number)
            number += 1
        is_open = True
        await until(lambda: pipeline.spool.pending("out").records == 0, "everything is accounted for")
        bad = {step for step in expected if has_bad_ones and step % 5 >= 3}
        letters = await pipeline.dead_letters.entries(limit=1000)
        assert {letter.record["row_step"] for letter in letters} == bad
        assert stored == Counter(expected - bad)
        status = pipeline.pipeline_status().sinks[0]
        went = status.ledger.delivered + status.ledger.filtered + sum(status.ledger.rejected.values())
        assert status.ledger.accepted + status.ledger.recovered == went
        await pipeline.stop(1.0)


async def test_dead_letters_go_with_their_workload() -> None:
    async def refuse(batch: object) -> object:
        return Rejected(dict.fromkeys(range(len(batch.records)), "no"))  # type: ignore[attr-defined]

    pipeline = pipeline_of(None, Scripted(refuse), BatchLimits(max_records=3, max_wait_seconds=0.001))
    await pipeline.start()
    await pipeline.submit([row(step, WORKLOADS[step % 2]) for step in range(10)])
    await until(lambda: pipeline.dead_letters.count_letters() == 10, "ten dead letters")
    assert await pipeline.erase_records(GONE, 10) == (0, 5)
    assert pipeline.dead_letters.count_letters() == 5
    assert {letter.record["row_step"] % 2 for letter in await pipeline.dead_letters.entries()} == {1}
    await pipeline.stop()


async def pipeline_that_sends() -> tuple[Pipeline, asyncio.Future[object]]:
    """Return a pipeline whose sink has a batch of two workloads, and the future of its answer."""
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def judge(batch: object) -> object:
        return await answer

    sink = Scripted(judge)
    pipeline = pipeline_of(None, sink, BatchLimits(max_records=2, max_wait_seconds=0.001), PATIENT)
    await pipeline.start()
    await pipeline.submit([row(0), row(1, "b")])
    await until(lambda: bool(sink.asked), "a send is under way")
    return pipeline, answer


async def test_a_send_under_way_is_waited_for_and_its_refusals_are_no_dead_letters() -> None:
    pipeline, answer = await pipeline_that_sends()
    with pytest.raises(Unavailable, match="delete again"):
        await pipeline.erase_records(GONE, 0.05)
    erasing = asyncio.create_task(pipeline.erase_records(GONE, 60))
    answer.set_result(Rejected({0: "no", 1: "no"}))
    assert (await erasing).dead_letters == 0
    assert [letter.record["row_step"] for letter in await pipeline.dead_letters.entries()] == [1]
    await pipeline.stop()


async def test_a_sink_that_does_not_answer_holds_up_no_deletion_from_the_store() -> None:
    pipeline, answer = await pipeline_that_sends()

    async def store(batch: object) -> object:
        return Delivered()

    await pipeline.erase_records(GONE, 0.05, store=Scripted(store))
    answer.set_result(Rejected({0: "no", 1: "no"}))
    await until(lambda: pipeline.spool.pending("out").records == 0, "everything is accounted for")
    assert [letter.record["row_step"] for letter in await pipeline.dead_letters.entries()] == [1]
    await pipeline.stop()


PODS = [PodName("u1", "n", "p1"), PodName("", "n", "p2")]


@pytest.mark.parametrize(
    ("record", "is_covered"),
    [
        (row(1), True),
        (row(1, "b"), False),
        (Event(origin=Origin(pod_uid="u1"), type="stalled"), True),
        (Event(origin=Origin(pod_uid="u2", namespace="n", pod_name="p1"), type="stalled"), False),
        (Event(origin=Origin(namespace="n", pod_name="p1"), type="stalled"), True),
        (Event(origin=Origin(pod_uid="late", namespace="n", pod_name="p2"), type="stalled"), True),
        (Event(origin=Origin(namespace="m", pod_name="p1"), type="stalled"), False),
        (Event(origin=Origin(pod_uid="u1", workload_uid="b"), type="stalled"), False),
        (Pod(uid="u9", name="p9", workloads=[WorkloadReference(uid="a")]), True),
        (Pod(uid="u1", name="p1", workloads=[WorkloadReference(uid="b")]), False),
        (rows(1)[0], False),
    ],
)
def test_which_records_belong_to_a_workload(record: Record, is_covered: bool) -> None:
    assert Erasure(workload_uids=["a"], pods=PODS).covers(record) is is_covered


async def test_a_mark_goes_with_the_last_of_its_batches(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "x.sqlite3")
    await spool.open({"out": True})
    await spool.append(b"batch", 1)
    await spool.erase_batches(GONE)
    assert [erasure.last_batch for erasure in spool.erasures] == [1]
    chunk = await spool.read_chunk("out", BatchLimits())
    assert chunk is not None
    await spool.advance("out", chunk.end, 1)
    await until(lambda: not spool.erasures, "the mark is gone")
    await spool.close()
