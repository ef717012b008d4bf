"""The gate: identity, filters, ledgers, several pipelines, overload."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Context,
    Delivered,
    Event,
    Evidence,
    Measurement,
    NoSettings,
    Origin,
    Overloaded,
    Pod,
    Record,
    Retry,
    SeriesBatch,
    Sink,
    StepMetrics,
)
from lens_core.base.errors import Unavailable
from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.sink_state import Reservation
from lens_core.delivery.spool.spool import Spool
from lens_core.model.record_filter import RecordFilter
from lens_core.pipeline.ingest_gate import IngestGate
from lens_core.pipeline.pipeline import Pipeline


class Keeping(Sink):
    """Keeps records while it is up."""

    name = "keeping"
    accepts = (StepMetrics, Event)

    def __init__(self, *, is_up: bool = True) -> None:
        context = Context(name="k", logger=logging.getLogger("k"), data_dir=Path("/nowhere"), metrics=SelfMetrics())
        super().__init__(NoSettings(), context)
        self.records: list[Record] = []
        self.is_up = is_up

    async def send(self, batch: Batch) -> Answer:
        if not self.is_up:
            return Retry("down")
        self.records += batch.records
        return Delivered()


def rows(count: int, origin: Origin | None = None) -> list[Record]:
    where = origin or Origin(pod_name="p")
    return [StepMetrics(origin=where, data_source="wandb", row_step=step, values={}) for step in range(count)]


async def started(
    path: Path, name: str, sink: Sink, *, required: bool = True, wanted: RecordFilter | None = None, size: int = 1 << 20
) -> Pipeline:
    slot = SinkSlot(name="s", sink=sink, required=required, limits=BatchLimits(max_wait_seconds=0.0))
    spool = Spool(path / f"{name}.spool", max_bytes=size)
    pipeline = Pipeline(name, spool, [slot], metrics=SelfMetrics(), record_filter=wanted or RecordFilter())
    await pipeline.start()
    return pipeline


async def until(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), 240)


class Pods:
    """Knows the workload of a pod; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.met: list[str] = []

    def complete(self, origin: Origin) -> Origin:
        self.asked += 1
        return origin if origin.workload_uid else msgspec.structs.replace(origin, workload_uid=f"w-{origin.pod_name}")

    def record_pods(self, pods: Iterable[Pod]) -> None:
        self.met += [pod.name for pod in pods]


async def test_every_pipeline_gets_the_records(tmp_path: Path) -> None:
    sinks = [Keeping(), Keeping()]
    pipelines = [await started(tmp_path, f"p{n}", sink) for n, sink in enumerate(sinks)]
    gate = IngestGate("api", pipelines, metrics=SelfMetrics())
    await gate.submit(rows(5))
    await until(lambda: all(len(sink.records) == 5 for sink in sinks))
    assert (gate.ledger.received, gate.ledger.accepted, gate.ledger.entry_difference()) == (5, 5, 0)
    for pipeline in pipelines:
        await pipeline.stop()


async def test_what_one_required_pipeline_refuses_reaches_no_other(tmp_path: Path) -> None:
    up, down = Keeping(), Keeping(is_up=False)
    first = await started(tmp_path, "first", up)
    full = await started(tmp_path, "full", down, size=8 * 1024)
    gate = IngestGate("api", [first, full], metrics=SelfMetrics())
    taken = 0
    for _ in range(2000):
        try:
            await gate.submit(rows(50))
        except Overloaded:
            break
        taken += 50
    for _ in range(3):  # the sender tries again after a while, when nobody remembers that the spool was full
        full.spool.engine.full_until = 0.0
        with pytest.raises(Overloaded, match="full because of a required sink"):
            await gate.submit(rows(50))
    await until(lambda: first.pipeline_status().sinks[0].pending_records == 0)
    assert (len(up.records), gate.ledger.accepted) == (taken, taken)
    down.is_up = True
    await until(lambda: len(down.records) == taken)
    await gate.submit(rows(50))
    await until(lambda: len(up.records) == len(down.records) == taken + 50)
    for pipeline in (first, full):
        await pipeline.stop()


async def test_of_those_that_race_for_the_last_room_none_reaches_only_one_pipeline(tmp_path: Path) -> None:
    up, down = Keeping(), Keeping(is_up=False)
    pipelines = [await started(tmp_path, "first", up), await started(tmp_path, "full", down, size=8 * 1024)]
    gate = IngestGate("api", pipelines, metrics=SelfMetrics())
    accepted: list[str] = []

    async def send(pod: str) -> bool:
        with contextlib.suppress(Overloaded):
            await gate.submit(rows(20, Origin(pod_name=pod)))
            accepted.append(pod)
            return True
        return False

    number, all_taken = 0, True
    while all_taken:
        all_taken = all(await asyncio.gather(*(send(f"{number}-{which}") for which in range(8))))
        number += 1
    down.is_up = True
    await until(lambda: all(pipeline.pipeline_status().sinks[0].pending_records == 0 for pipeline in pipelines))
    for sink in (up, down):
        assert Counter(record.origin.pod_name for record in sink.records) == dict.fromkeys(accepted, 20)
    assert [pipeline.spool.engine.reservations.bytes for pipeline in pipelines] == [0, 0]
    for pipeline in pipelines:
        await pipeline.stop()


async def test_room_that_only_an_optional_sink_holds_is_given(tmp_path: Path) -> None:
    up, down, other = Keeping(), Keeping(is_up=False), Keeping()
    slots = [
        SinkSlot(name="up", sink=up, limits=BatchLimits(max_wait_seconds=0.0)),
        SinkSlot(name="down", sink=down, required=False, limits=BatchLimits(max_records=50, max_wait_seconds=0.0)),
    ]
    small = Pipeline("small", Spool(tmp_path / "small.spool", max_bytes=8 * 1024), slots, metrics=SelfMetrics())
    await small.start()
    gate = IngestGate("api", [await started(tmp_path, "other", other), small], metrics=SelfMetrics())
    for number in range(60):
        await gate.submit(rows(50))
        await until(lambda so_far=50 * (number + 1): len(up.records) == so_far)  # type: ignore[misc]
    assert small.pipeline_status().sinks[1].ledger.dropped["spool_full"] > 0
    for pipeline in gate._pipelines:
        await pipeline.stop()


async def test_identity_is_completed_once_per_origin(tmp_path: Path) -> None:
    sink, pods = Keeping(), Pods()
    pipeline = await started(tmp_path, "p", sink)
    gate = IngestGate("api", [pipeline], metrics=SelfMetrics(), identity=pods)
    known = rows(3, Origin(workload_uid="w-known", pod_name="x"))
    await gate.submit([*rows(50, Origin(pod_name="a")), *known])
    await until(lambda: len(sink.records) == 53)
    assert {record.origin.workload_uid for record in sink.records} == {"w-a", "w-known"}
    assert pods.asked == 2
    await pipeline.stop()


@pytest.mark.parametrize(
    ("received", "filtered", "rejected", "accepted", "merged"),
    [(None, 0, {}, 4, 0), (None, 2, {"wrong type": 3}, 4, 0), (100, 10, {"a": 1, "b": 2}, 87, 83), (1, 0, {}, 1, 0)],
)
async def test_what_the_source_says_about_its_items_is_counted(
    tmp_path: Path, received: int | None, filtered: int, rejected: dict[str, int], accepted: int, merged: int
) -> None:
    pipeline = await started(tmp_path, "p", Keeping())
    metrics = SelfMetrics()
    gate = IngestGate("api", [pipeline], metrics=metrics)
    await gate.submit(rows(4), received=received, filtered=filtered, rejected=rejected)
    ledger = gate.ledger
    assert ledger.entry_difference() == 0
    assert (ledger.accepted, ledger.merged, ledger.filtered, ledger.rejected) == (accepted, merged, filtered, rejected)
    await pipeline.stop()


async def test_records_that_no_pipeline_wants_are_filtered(tmp_path: Path) -> None:
    only_events = await started(tmp_path, "a", Keeping(), wanted=RecordFilter(kinds=["event"]))
    team = await started(tmp_path, "b", Keeping(), wanted=RecordFilter(labels={"team": "x"}))
    gate = IngestGate("api", [only_events, team], metrics=SelfMetrics())
    await gate.submit([*rows(3), *rows(2, Origin(labels={"team": "x"})), Event(type="resumed")])
    assert (gate.ledger.received, gate.ledger.filtered, gate.ledger.accepted) == (6, 3, 3)
    await gate.submit(rows(3), received=30)
    assert (gate.ledger.received, gate.ledger.filtered, gate.ledger.accepted) == (36, 33, 3)
    assert gate.ledger.entry_difference() == 0
    await only_events.stop()
    await team.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        Event(type="resumed", details={"number": 2**64}),  # refused before anything is stored
        StepMetrics(origin=Origin(pod_name="p"), data_source="wandb", row_step=2**64, values={}),  # cannot be encoded
    ],
)
async def test_a_record_that_cannot_be_taken_is_counted_and_takes_no_other_with_it(
    tmp_path: Path, wrong: Record, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Keeping()
    pipeline = await started(tmp_path, "a", sink)
    gate = IngestGate("api", [pipeline], metrics=SelfMetrics())
    await gate.submit([*rows(2), wrong, Event(type="resumed")])
    ledger = gate.ledger
    assert (ledger.received, ledger.accepted, ledger.filtered, ledger.rejected) == (4, 3, 0, {"invalid": 1})
    assert ledger.entry_difference() == 0
    await until(lambda: len(sink.records) == 3)
    assert "api: 1 records are refused" in caplog.text
    await pipeline.stop()


async def test_a_kind_is_wanted_when_one_pipeline_wants_it(tmp_path: Path) -> None:
    only_events = await started(tmp_path, "a", Keeping(), wanted=RecordFilter(kinds=["event"]))
    gate = IngestGate("api", [only_events], metrics=SelfMetrics())
    assert [gate.wants(kind) for kind in (Event, StepMetrics)] == [True, False]
    everything = await started(tmp_path, "b", Keeping())
    gate = IngestGate("api", [only_events, everything], metrics=SelfMetrics())
    assert [gate.wants(kind) for kind in (Event, StepMetrics)] == [True, True]
    assert not IngestGate("api", [], metrics=SelfMetrics()).wants(Event)
    await only_events.stop()
    await everything.stop()


@pytest.mark.parametrize("has_pipeline", [True, False])
@pytest.mark.parametrize(
    "record",
    [
        Measurement(name="ci.runs", value=1.0),
        SeriesBatch(body=b"", compression="none", series=1),
        StepMetrics(origin=Origin(pod_name="p"), data_source="wandb", row_step=1, values={}),
    ],
)
async def test_measured_values_that_no_sink_takes_are_not_acknowledged(
    tmp_path: Path, record: Record, has_pipeline: bool
) -> None:
    sink = Keeping()
    sink.accepts = (Event,)  # type: ignore[misc, assignment]
    pipeline = await started(tmp_path, "p", sink)
    gate = IngestGate("machine", [pipeline] if has_pipeline else [], metrics=SelfMetrics())
    with pytest.raises(Unavailable, match=f"no sink that machine feeds stores {type(record).__name__}"):
        await gate.submit([record] * 3, received=5, filtered=1)
    assert gate.ledger.rejected == {"no_sink": 4}
    assert gate.ledger.entry_difference() == 0
    await gate.submit([Event(type="resumed"), record])
    await gate.submit([Pod(uid="u", name="p")])
    await pipeline.stop()


async def test_secrets_in_evidence_and_events_of_any_client_are_hidden(tmp_path: Path) -> None:
    sink = Keeping()
    sink.accepts = (Event, Evidence)  # type: ignore[misc, assignment]
    pipeline = await started(tmp_path, "p", sink)
    gate = IngestGate("api", [pipeline], metrics=SelfMetrics())
    facts = {
        "wandb": {"config": {"api_key": "s3cret", "nested": [{"db": {"password": "s3cret"}}], "max_tokens": 5}},
        "config.api_key": "s3cret",
        "hfToken": {"a": "s3cret"},
        "argv": ["--url=https://me:s3cret@host/?token=s3cret"],
    }
    await gate.submit([Evidence(source="x", facts=facts), Event(type="training_failed", details=facts)])
    await until(lambda: len(sink.records) == 2)
    assert "s3cret" not in repr(sink.records)
    assert repr(sink.records).count("'max_tokens': 5") == 2
    await pipeline.stop()


async def test_pods_that_pass_by_are_remembered(tmp_path: Path) -> None:
    pipeline, pods = await started(tmp_path, "p", Keeping()), Pods()
    gate = IngestGate("api", [pipeline], metrics=SelfMetrics(), identity=pods)
    await gate.submit([*rows(2), Pod(uid="u-1", name="pod-1")])
    assert pods.met == ["pod-1"]
    await pipeline.stop()


async def test_labels_that_identity_knows_count_for_the_filters(tmp_path: Path) -> None:
    pipeline = await started(tmp_path, "p", Keeping(), wanted=RecordFilter(labels={"workload_uid": "w-a"}))
    gate = IngestGate("api", [pipeline], metrics=SelfMetrics(), identity=Pods())
    await gate.submit([*rows(2, Origin(pod_name="a")), *rows(1, Origin(pod_name="b"))])
    assert (gate.ledger.accepted, gate.ledger.filtered) == (2, 1)
    await pipeline.stop()


async def fill(gate: IngestGate) -> int:
    """Submit until the gate refuses; the number of records that it took."""
    for taken in range(0, 10_000, 10):
        try:
            await gate.submit(rows(10))
        except Overloaded:
            return taken
    raise AssertionError("it never refuses")


@pytest.mark.parametrize("alone", [True, False])
async def test_a_full_required_pipeline_refuses_for_all(tmp_path: Path, alone: bool) -> None:
    dead, alive = Keeping(is_up=False), Keeping()
    full = await started(tmp_path, "full", dead, size=5_000)
    other = await started(tmp_path, "other", alive)
    gate = IngestGate("api", [full] if alone else [full, other], metrics=SelfMetrics())
    taken = await fill(gate)
    with pytest.raises(Overloaded):
        await gate.submit(rows(10))
    assert gate.ledger.accepted == taken > 0
    assert gate.ledger.rejected == {"overloaded": 20}
    assert gate.last_refusal == "the spool is full because of a required sink"
    assert gate.ledger.entry_difference() == 0
    dead.is_up = True
    await until(lambda: len(dead.records) == taken)
    await gate.submit(rows(10))
    await full.stop()
    await other.stop()


class Broken(Pipeline):
    """Has room for all records, and cannot write them."""

    async def submit(self, records: Sequence[Record], reservation: Reservation | None = None) -> None:
        raise Unavailable("the disk does not answer")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("required", [True, False])
async def test_what_one_pipeline_cannot_write_is_not_acknowledged(tmp_path: Path, alone: bool, required: bool) -> None:
    slot = SinkSlot(name="s", sink=Keeping(), required=required)
    broken = Broken("broken", Spool(tmp_path / "broken.spool"), [slot], metrics=SelfMetrics())
    await broken.start()
    other = await started(tmp_path, "other", Keeping())
    gate = IngestGate("api", [broken] if alone else [broken, other], metrics=SelfMetrics())
    with pytest.raises(Unavailable, match="disk"):
        await gate.submit(rows(10))
    assert gate.ledger.accepted == 0
    assert gate.ledger.entry_difference() == 0
    await broken.stop()
    await other.stop()


async def test_a_pipeline_of_optional_sinks_never_refuses(tmp_path: Path) -> None:
    dead, alive = Keeping(is_up=False), Keeping()
    optional = await started(tmp_path, "optional", dead, required=False, size=5_000)
    required = await started(tmp_path, "required", alive)
    gate = IngestGate("api", [optional, required], metrics=SelfMetrics())
    for _ in range(50):
        await gate.submit(rows(10))
    await until(lambda: len(alive.records) == 500)
    status = optional.pipeline_status().sinks[0]
    assert status.ledger.dropped["spool_full"] > 0
    assert optional.senders[0].ledger.sink_difference(status.pending_records) == 0
    await optional.stop()
    await gate.submit(rows(10))
    assert optional.ledger.dropped == {"spool_full": 10}
    assert gate.ledger.accepted == 510
    await required.stop()


async def test_what_is_in_flight_is_bounded(tmp_path: Path) -> None:
    pipeline = await started(tmp_path, "p", Keeping())
    gate = IngestGate("api", [pipeline], metrics=SelfMetrics(), max_records_in_flight=100)
    outcomes = await asyncio.gather(*(gate.submit(rows(40)) for _ in range(5)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 2 + [Overloaded] * 3
    await gate.submit(rows(1000))
    assert gate.ledger.entry_difference() == 0
    await pipeline.stop()


async def test_an_empty_submission_only_counts(tmp_path: Path) -> None:
    pipeline = await started(tmp_path, "p", Keeping())
    gate = IngestGate("api", [pipeline], metrics=SelfMetrics())
    await gate.submit([], rejected={"wrong type": 3})
    assert (gate.ledger.received, gate.ledger.rejected) == (3, {"wrong type": 3})
    assert pipeline.spool.spool_status().bytes == 0
    await pipeline.stop()
