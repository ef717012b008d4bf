from __future__ import annotations

import gzip
import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sinks.otlp.requests import Builder
from lens_plugins.sinks.otlp.settings import OtlpSinkSettings
from lens_plugins.sinks.otlp.sink import OtlpSink
from lens_plugins.sources.log_batches import LineBatch
from lens_plugins.sources.otlp.log_records import LogRecords
from lens_plugins.sources.otlp.schema import decode_request
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from lens_core import (
    Batch,
    Delivered,
    Directory,
    Event,
    LensError,
    Measurement,
    Origin,
    Pod,
    Poisoned,
    Position,
    Record,
    Retry,
    Secret,
    Sink,
    StepMetrics,
    WorkloadReference,
)
from lens_core.testing import SINK_CHECKS, HttpReceiver, SinkHarness, Trouble, make_context, until
from lens_core.testing.sinks import SinkCheck
from tests.generated import examples

NOW = 1_795_000_000.25
ORIGIN = Origin(cluster="c", pod_name="llama-0", pod_uid="u-0", namespace="ml", node="n1", rank=3, world_size=8)


def row(step: int = 7, **fields: Any) -> StepMetrics:
    given: dict[str, Any] = {"values": {"lm_loss": 0.5}, "event_time": NOW, "run_id": "r1", **fields}
    return StepMetrics(origin=ORIGIN, data_source="wandb", row_step=step, **given)


def batch(*records: Record, start: int = 0) -> Batch:
    return Batch(
        records=records,
        start=Position(start, 0),
        end=Position(start + 1, 0),
        spool_id="s",
        pipeline="p",
        sink="otlp",
    )


def make_sink(folder: Path, url: str, **given: Any) -> OtlpSink:
    return OtlpSink(OtlpSinkSettings(url=url, **given), make_context("otlp", folder))


def builder(**given: Any) -> Builder:
    directory = Directory()
    workload = WorkloadReference(uid="w-job", name="llama", kind="PyTorchJob")
    directory.replace([Pod(uid="u-0", name="llama-0", namespace="ml", workloads=[workload])])
    return Builder(**{"rows": "metrics", "events": True, "directory": directory, "clock": lambda: NOW, **given})


def attributes_of(held: Any) -> dict[str, Any]:
    found = {}
    for pair in held:
        which = pair.value.WhichOneof("value")
        found[pair.key] = getattr(pair.value, which) if which else None
    return found


def test_rows_become_gauges_and_the_step_a_gauge_of_its_own() -> None:
    values = {"lm_loss": 0.5, "elapsed_time_per_iteration_ms": 1500.0, "odd name/µ": math.inf}
    message = builder().metrics_of([row(values=values, iteration=9, attempt=2, tags={"lm_loss": {"phase": "a"}})])
    (resource,) = message.resource_metrics
    assert attributes_of(resource.resource.attributes) == {
        "service.name": "llama",
        "service.instance.id": "llama-0/3",
        "lens.workload.uid": "w-job",
        "lens.workload.name": "llama",
        "k8s.cluster.name": "c",
        "k8s.namespace.name": "ml",
        "k8s.node.name": "n1",
        "k8s.pod.name": "llama-0",
        "k8s.pod.uid": "u-0",
        "dl.rank": 3,
        "dl.world_size": 8,
    }
    found = {}
    for metric in resource.scope_metrics[0].metrics:
        (point,) = metric.gauge.data_points
        assert point.time_unix_nano == round(NOW * 1e9)
        found[metric.name, metric.unit] = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        told = attributes_of(point.attributes)
        assert {"step", "iteration", "row_step"}.isdisjoint(told)
        assert (told["lens.run.id"], told["lens.data_source"], told["lens.attempt"]) == ("r1", "wandb", "2")
        assert told.get("phase") == ("a" if metric.name == "training.loss" else None)
    assert found == {
        ("training.loss", ""): 0.5,
        ("training.iteration.duration", "s"): 1.5,
        ("training.odd_name/_", ""): math.inf,
        ("training.step", "{step}"): 7,
        ("training.iteration", "{iteration}"): 9,
    }


def test_rows_of_one_producer_share_a_resource_and_its_metrics() -> None:
    message = builder().metrics_of([row(step) for step in range(100)])
    (resource,) = message.resource_metrics
    assert {metric.name: len(metric.gauge.data_points) for metric in resource.scope_metrics[0].metrics} == {
        "training.loss": 100,
        "training.step": 100,
    }


def test_measurements_become_gauges_with_their_unit_and_tags() -> None:
    records = [
        Measurement(name="gpu.util", value=0.5, unit="%", tags={"gpu": "1"}, event_time=NOW),
        Measurement(name="no data", value=None),
    ]
    message = builder().metrics_of(records)
    (metric,) = message.resource_metrics[0].scope_metrics[0].metrics
    assert (metric.name, metric.unit, metric.gauge.data_points[0].as_double) == ("gpu.util", "%", 0.5)
    assert not builder().is_wanted(records[1])


def test_events_become_log_records_with_a_severity() -> None:
    events = [Event(type=kind, origin=ORIGIN, event_time=NOW, details={"a": [1, {"b": None}]}) for kind in KINDS]
    message = builder().logs_of([*events, row()])
    records = message.resource_logs[0].scope_logs[0].log_records
    assert [(one.event_name, one.severity_number) for one in records] == [
        ("lens.event.training_failed", 17),
        ("lens.event.loss_not_finite", 13),
        ("lens.event.checkpoint_saved", 9),
    ]
    assert not builder(events=False).logs_of(events).resource_logs


KINDS = ("training_failed", "loss_not_finite", "checkpoint_saved")
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)


@settings(deadline=None, max_examples=examples(100))
@given(
    step=st.integers(-(2**63), 2**63 - 1),
    values=st.dictionaries(TEXTS, st.floats(), max_size=4),
    run_id=TEXTS,
    attempt=st.none() | st.integers(0, 2**31 - 1),
    iteration=st.none() | st.integers(-(2**63), 2**63 - 1),
    sequence=st.integers(-(2**63), 2**63 - 1),
    event_time=st.floats(0, 4e9),
    tags=st.dictionaries(TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=2), max_size=2),
    details=st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS, max_size=3),
)
def test_another_lens_reads_back_what_was_sent_as_log_records(
    details: dict[str, Any], step: int, **fields: Any
) -> None:
    event = Event(
        type="evaluation",
        origin=ORIGIN,
        details=details,
        **{key: fields[key] for key in ("run_id", "attempt", "iteration", "event_time")},
    )
    sent = [row(step, **fields), event]
    body = Builder("logs", True, Directory()).logs_of(sent).SerializeToString()
    read = LogRecords(1024, lambda origin: origin, LineBatch(NOW, "", ()))
    for _ in read.convert_records(decode_request("logs", body)):
        pass
    assert read.lines.rejected == []
    # NaN is not equal to itself, and the directory of the receiver knows its own workload.
    assert repr(read.others) == repr(sent)


class OtlpHarness(SinkHarness):
    troubles = ("absent", "busy", "error", "too_large", "garbage", "hang")

    def __init__(self, receiver: HttpReceiver, folder: Path, rows: str) -> None:
        self._receiver = receiver
        self._folder = folder
        self._rows = rows

    def make_sink(self) -> Sink:
        made: Sink = make_sink(self._folder, self._receiver.url, timeout_seconds=5.0, rows=self._rows)
        return made

    async def trouble(self, kind: Trouble | None) -> None:
        await self._receiver.trouble(kind)

    async def stored(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for request in self._receiver.received:
            body = gzip.decompress(request.body)
            if request.target == "/v1/metrics":
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    for metric in resource.scope_metrics[0].metrics:
                        if metric.name == "training.step":
                            found.update(point.as_int for point in metric.gauge.data_points)
            else:
                for held in ExportLogsServiceRequest.FromString(body).resource_logs:
                    for record in held.scope_logs[0].log_records:
                        found.update([attributes_of(record.attributes)["lens.row_step"]])
        return found


@pytest.mark.parametrize("rows", ["metrics", "logs"])
@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
async def test_contract(check: SinkCheck, rows: str, tmp_path: Path) -> None:
    async with HttpReceiver(answer=lambda received: b"") as receiver:
        await check(OtlpHarness(receiver, tmp_path, rows), tmp_path)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Poisoned),
        (413, Poisoned),
        (401, Retry),
        (404, Retry),
        (429, Retry),
        (500, Retry),
        (503, Retry),
        (302, Retry),
    ],
)
async def test_answers(status: int, kind: type[object], tmp_path: Path) -> None:
    async with HttpReceiver() as receiver:
        sink = make_sink(tmp_path, receiver.url)
        receiver.will(status)
        answer = await sink.send(batch(row()))
        assert isinstance(answer, kind)
        if status in (429, 503):
            assert isinstance(answer, Retry)
            assert answer.after_seconds == 0.0
        receiver.answers(b"<html>please log in</html>")
        assert isinstance(await sink.send(batch(row())), Retry)
        await sink.stop()


async def test_a_partial_success_is_counted_and_not_sent_again(tmp_path: Path) -> None:
    partial = ExportMetricsPartialSuccess(rejected_data_points=3, error_message="too old")
    async with HttpReceiver() as receiver:
        receiver.answers(ExportMetricsServiceResponse(partial_success=partial).SerializeToString())
        sink = make_sink(tmp_path, receiver.url)
        assert await sink.send(batch(row())) == Delivered()
        for harmless in (b"", b"\x0a\x00", b"{}", b"\xff"):
            receiver.answers(harmless)
            assert await sink.send(batch(row(), start=1)) == Delivered()
        await sink.stop()
        registry = sink.context.metrics.registry
        labels = {"component": "otlp", "signal": "metrics"}
        assert registry.get_sample_value("lens_otlp_rejected_items_total", labels) == 3.0


async def test_what_the_receiver_has_is_not_sent_again_with_the_rest(tmp_path: Path) -> None:
    async with HttpReceiver(answer=lambda received: b"") as receiver:
        sink = make_sink(tmp_path, receiver.url, headers={"X-Team": Secret("t")}, token=Secret("s3cret"))
        records = (row(), Event(type="evaluation", origin=ORIGIN, event_time=NOW))
        receiver.will(200, 503)
        assert isinstance(await sink.send(batch(*records)), Retry)
        assert await sink.send(batch(*records)) == Delivered()
        await sink.stop()
    assert [request.target for request in receiver.received] == ["/v1/metrics", "/v1/logs"]
    headers = receiver.received[0].headers
    assert (headers["x-team"], headers["authorization"], headers["content-encoding"]) == ("t", "Bearer s3cret", "gzip")
    assert headers["content-type"] == "application/x-protobuf"


async def test_what_is_not_wanted_is_counted_as_filtered(tmp_path: Path) -> None:
    async with HttpReceiver() as receiver:
        sink = make_sink(tmp_path, receiver.url, events=False)
        assert await sink.send(batch(Event(type="evaluation", origin=ORIGIN))) == Delivered(filtered=1)
        await sink.stop()
        assert receiver.requests == 0


async def test_check_says_why_not(tmp_path: Path) -> None:
    async with HttpReceiver(answer=lambda received: b"") as receiver:
        await make_sink(tmp_path, receiver.url).check()
        assert [request.target for request in receiver.received] == ["/v1/metrics", "/v1/logs"]
        receiver.will(401)
        with pytest.raises(LensError, match="does not accept the key"):
            await make_sink(tmp_path, receiver.url).check()


@pytest.mark.parametrize("url", ["http://c:4318/v1/metrics", "http://c:4318/x/v1/logs/", "http://u:p@c", "ftp://c"])
def test_urls(url: str) -> None:
    if "@" in url:
        made = msgspec.convert({"url": url}, OtlpSinkSettings)
        assert (made.url, made.username) == ("http://c", "u")
        return
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"url": url}, OtlpSinkSettings)


async def test_lens_own_metrics_are_sent_where_they_are_wanted(tmp_path: Path) -> None:
    async with HttpReceiver(answer=lambda received: b"") as receiver:
        sink = make_sink(tmp_path, receiver.url, own_metrics_seconds=0.01)
        sink.context.counter("acme_things_total", "Things.").inc(3)
        sink.context.histogram("acme_seconds", "Seconds.").observe(0.3)
        await sink.start()
        await until(lambda: len(receiver.received) >= 2, "own metrics are sent")
        await sink.stop()
    request = ExportMetricsServiceRequest.FromString(gzip.decompress(receiver.received[0].body))
    metrics = {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}
    things = metrics["acme_things"].sum
    assert (things.is_monotonic, things.data_points[0].as_double) == (True, 3.0)
    (point,) = metrics["acme_seconds"].histogram.data_points
    assert (point.count, sum(point.bucket_counts), point.sum) == (1, 1, 0.3)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
