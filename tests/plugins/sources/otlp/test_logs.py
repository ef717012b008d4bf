from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from lens_core import LogLine, StepMetrics
from lens_core.testing import LensFactory
from tests.plugins.sources.otlp.conftest import OtlpApp
from tests.plugins.sources.otlp.requests import NOW, RESOURCE, any_value, attributes, encoded, logs, rejected_of

SECONDS = NOW / 1e9


def record(body: Any, time: int = NOW, **keys: Any) -> LogRecord:
    made = LogRecord(time_unix_nano=time, attributes=attributes({key.replace("__", "."): keys[key] for key in keys}))
    if body is not None:
        made.body.CopyFrom(any_value(body))
    return made


def lines_of(otlp: OtlpApp) -> list[LogLine]:
    assert all(isinstance(line, LogLine) for line in otlp.gate.records)
    return [line for line in otlp.gate.records if isinstance(line, LogLine)]


async def test_records_become_lines_of_their_pod(otlp: OtlpApp) -> None:
    resource = {**RESOURCE, "k8s.container.name": "trainer", "k8s.node.name": "n1", "dl.rank": 3}
    await otlp.export(logs(record("iteration 1", log__iostream="stderr"), resource=resource), "/v1/logs")
    (line,) = lines_of(otlp)
    assert (line.text, line.event_time, line.stream) == ("iteration 1", SECONDS, "stderr")
    origin = line.origin
    assert (origin.pod_name, origin.pod_uid, origin.container, origin.node, origin.rank) == (
        *("llama-0", "u-0", "trainer", "n1"),
        3,
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("plain\n", "plain"),
        (b"bytes \xff", "bytes \ufffd"),
        (7, "7"),
        (0.5, "0.5"),
        ([1, "a"], '[1,"a"]'),
        ({"own": {"x": float("nan")}}, '{"own":{"x":"NaN"}}'),
        ({"log": "of fluent bit\n", "stream": "stdout"}, "of fluent bit"),
        ({"message": "of a shipper", "other": 1}, "of a shipper"),
    ],
)
async def test_bodies_of_every_kind_are_lines(otlp: OtlpApp, body: Any, text: str) -> None:
    await otlp.export(logs(record(body)), "/v1/logs")
    assert [line.text for line in lines_of(otlp)] == [text]


async def test_a_body_that_a_shipper_wrote_says_whose_it_is(otlp: OtlpApp) -> None:
    kubernetes = {"pod_name": "llama-0", "namespace_name": "ml", "labels": {"app": "x"}}
    await otlp.export(logs(record({"log": "a line", "kubernetes": kubernetes}), resource={}), "/v1/logs")
    assert [line.origin.pod_uid for line in lines_of(otlp)] == ["u-0"]


async def test_several_lines_and_tracebacks_are_lines_of_their_own(otlp: OtlpApp) -> None:
    stack = "Traceback (most recent call last):\n  File x\nRuntimeError: CUDA out of memory"
    answer = await otlp.export(logs(record("failed\nagain", exception__stacktrace=stack)), "/v1/logs")
    assert [line.text for line in lines_of(otlp)] == ["failed", "again", *stack.split("\n")]
    assert (rejected_of(answer.content), otlp.gate.received) == ((0, ""), 1)


async def test_a_bad_record_loses_no_neighbour(otlp: OtlpApp) -> None:
    damaged = encoded(logs(record("good"), LogRecord(trace_id=b"abc", time_unix_nano=NOW, body=any_value("short id"))))
    answer = await otlp.post("/v1/logs", **damaged)
    assert answer.status_code == 200
    # A message in a record that does not end: its bytes are longer than they say.
    whole = logs(record("first"), record("x" * 50), record("last")).SerializeToString()
    broken = whole.replace(b"\x0a\x32" + b"x" * 50, b"\x0a\x33" + b"x" * 50)
    assert broken != whole
    answer = await otlp.post("/v1/logs", content=broken, headers={"Content-Type": "application/x-protobuf"})
    assert rejected_of(answer.content) == (1, "a value cannot be decoded")
    assert [line.text for line in lines_of(otlp)] == ["good", "short id", "first", "last"]


async def test_texts_that_are_not_utf_8_are_kept_as_well_as_they_can_be(otlp: OtlpApp) -> None:
    body = logs(record("grrr", key="grrr")).SerializeToString().replace(b"grrr", b"g\xff\xfer")
    answer = await otlp.post("/v1/logs", content=body, headers={"Content-Type": "application/x-protobuf"})
    assert answer.content == b""
    assert [line.text for line in lines_of(otlp)] == ["g\ufffd\ufffdr"]


async def test_records_of_nobody_are_refused_with_what_to_do(otlp: OtlpApp) -> None:
    answer = await otlp.export(logs(record("a"), record("b\nc"), resource={}), "/v1/logs")
    count, message = rejected_of(answer.content)
    assert (count, otlp.gate.received, otlp.gate.rejected) == (2, 2, 2)
    assert "k8s.pod.name" in message


@pytest.mark.parametrize(
    ("resource", "workload", "pod"),
    [
        ({"host.name": "box"}, "", "box"),
        ({"host.name": "box", "lens.workload.uid": "w"}, "w", "box"),
        ({"slurm.job.id": 17, "host.name": "box"}, "slurm-17", "box"),
        ({"nemo.run.id": "r", "service.name": "megatron"}, "r", ""),
        ({"service.name": "train", "service.namespace": "team"}, "team/train", ""),
    ],
)
async def test_outside_kubernetes_the_resource_says_whose_it_is(
    otlp: OtlpApp, resource: dict[str, Any], workload: str, pod: str
) -> None:
    await otlp.export(logs(record("a line"), resource=resource), "/v1/logs")
    (line,) = lines_of(otlp)
    assert (line.origin.workload_uid, line.origin.pod_name) == (workload, pod)


async def test_the_name_of_an_sdk_without_a_service_is_nobody(otlp: OtlpApp) -> None:
    answer = await otlp.export(logs(record("a"), resource={"service.name": "unknown_service:python"}), "/v1/logs")
    assert rejected_of(answer.content)[0] == 1


async def test_times_are_those_of_the_record_or_of_its_arrival(otlp: OtlpApp) -> None:
    observed = LogRecord(observed_time_unix_nano=NOW, body=any_value("observed"))
    await otlp.export(logs(observed, record("never", time=0)), "/v1/logs")
    assert [line.event_time for line in lines_of(otlp)] == [SECONDS, None]


async def test_lines_are_cut_and_pods_ignored_as_those_of_other_shippers(otlp: OtlpApp) -> None:
    resource = {"k8s.pod.name": "primus-lens-telemetry-processor-1"}
    await otlp.export(logs(record("ä" * 300_000)), "/v1/logs")
    await otlp.export(logs(record("own"), resource=resource), "/v1/logs")
    assert [len(line.text.encode()) for line in lines_of(otlp)] == [256 * 1024]
    assert otlp.gate.received == 2


async def test_training_lines_are_understood_as_those_of_other_shippers(lens: LensFactory) -> None:
    running = await lens(config={"sources": {"otlp": {}, "logs": {}}})
    line = " iteration      100/     500 | consumed samples:  1600 | lm loss: 6.5E+00 | learning rate: 1.0E-4 |"
    resource = {"k8s.pod.name": "llama-0", "dl.rank": 7}
    body = logs(record(line), resource=resource).SerializeToString()
    answer = await running.post("/logs", body, content_type="application/x-protobuf")
    assert answer.status_code == 200
    (row,) = await running.wait_for_records(1)
    assert isinstance(row, StepMetrics)
    assert (row.row_step, row.values["lm_loss"], row.origin.pod_name) == (100, 6.5, "llama-0")
    answer = await running.post("/logs", [{"log": line.replace("100/", "101/"), "pod_name": "llama-0"}])
    assert answer.json()["success"]
    assert [row.row_step for row in await running.wait_for_records(2)] == [100, 101]
