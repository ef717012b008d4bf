from __future__ import annotations

from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lens_core import Event, StepMetrics
from tests.plugins.sources.otlp.conftest import OtlpApp
from tests.plugins.sources.otlp.requests import NOW, RESOURCE, attributes, rejected_of, traces


def span(name: str, seconds: float = 2.0, error: bool = False, **keys: Any) -> Span:
    made = Span(name=name, start_time_unix_nano=NOW, end_time_unix_nano=NOW + int(seconds * 1e9))
    made.attributes.extend(attributes({f"megatron.{key}": value for key, value in keys.items()}))
    if error:
        made.status.code = Status.STATUS_CODE_ERROR
    return made


async def test_megatrons_steps_become_rows(otlp: OtlpApp) -> None:
    resource = {**RESOURCE, "nemo.run.id": "r1", "dl.rank": 0, "dl.world_size": 8}
    steps = [
        span("megatron.train_step", iteration=5, loss=2.5, grad_norm=1),
        span("megatron.train.iteration", iteration=6),
    ]
    answer = await otlp.export(
        traces(*steps, span("megatron.optimizer_step", iteration=5), resource=resource), "/v1/traces"
    )
    assert answer.content == b""
    first, second = otlp.gate.records
    assert isinstance(first, StepMetrics)
    assert isinstance(second, StepMetrics)
    assert first.values == {"elapsed_time_per_iteration_ms": 2000.0, "loss": 2.5, "grad_norm": 1.0}
    assert (first.row_step, first.run_id, first.origin.rank, first.origin.world_size) == (5, "r1", 0, 8)
    assert (first.event_time, second.row_step) == (NOW / 1e9 + 2.0, 6)
    assert otlp.gate.received == 3


async def test_checkpoints_become_events(otlp: OtlpApp) -> None:
    held = [
        span("megatron.save_checkpoint", 3.0, iteration=100),
        span("megatron.save_checkpoint", 3.0, error=True, iteration=200),
        span("megatron.load_checkpoint", 1.0),
    ]
    await otlp.export(traces(*held), "/v1/traces")
    found = [(event.type, event.iteration) for event in otlp.gate.records if isinstance(event, Event)]
    assert found == [
        ("checkpoint_saving", 100),
        ("checkpoint_saved", 100),
        ("checkpoint_saving", 200),
        ("checkpoint_loaded", None),
    ]


async def test_a_bad_span_loses_no_neighbour(otlp: OtlpApp) -> None:
    backwards = span("megatron.train_step", iteration=5)
    backwards.end_time_unix_nano = NOW - 1
    held = [backwards, span("megatron.train_step", iteration="x"), span("megatron.train_step", iteration=7)]
    answer = await otlp.export(traces(*held), "/v1/traces")
    assert rejected_of(answer.content) == (1, "a span ends before it begins")
    assert [record.row_step for record in otlp.gate.records if isinstance(record, StepMetrics)] == [7]
    answer = await otlp.export(traces(span("megatron.train_step", iteration=5), resource={}), "/v1/traces")
    assert rejected_of(answer.content)[0] == 1
