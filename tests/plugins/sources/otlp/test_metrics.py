from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sources.remote_write.histograms import check_histogram
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from lens_core import Pod, StepMetrics, WorkloadReference
from tests.generated import examples
from tests.plugins.sources.otlp.conftest import OtlpApp
from tests.plugins.sources.otlp.requests import (
    MILLISECOND,
    NOW,
    RESOURCE,
    attributes,
    counter,
    gauge,
    metrics,
    point,
    rejected_of,
    series_of,
    values_of,
)
from tests.plugins.sources.remote_write.wire import labels_of

# The labels of every series of the resource, whose pod the directory knows.
ATTACHED = 'job="train",namespace="ml",pod_name="llama-0",pod_uid="u-0",workload_name="llama",workload_uid="w-job"'

WHOSE = 'pod_name="gone",rank="3"'


def raw(value: float) -> bytes:
    return struct.pack("<d", value)


async def test_gauges_and_sums_become_series_of_their_workload(otlp: OtlpApp) -> None:
    await otlp.export(
        metrics(
            gauge("train/loss", point(0.5), point(7, gpu="1")),
            counter("requests", point(3), unit="{request}"),
            counter("queue", point(4), monotonic=False),
        )
    )
    assert values_of(otlp.gate.records) == {
        f"train_loss{{{ATTACHED}}}": 0.5,
        f'train_loss{{gpu="1",{ATTACHED}}}': 7.0,
        f"requests_total{{{ATTACHED}}}": 3.0,
        f"queue{{{ATTACHED}}}": 4.0,
    }
    assert otlp.gate.received == 4


async def test_a_series_without_a_known_pod_keeps_what_its_resource_says(otlp: OtlpApp) -> None:
    resource = {"service.name": "a", "service.namespace": "b", "service.instance.id": "c", "k8s.pod.name": "gone"}
    await otlp.export(metrics(gauge("up", point(1.0)), resource={**resource, "os.type": "linux", "dl.rank": 3}))
    labels = f'instance="c",job="b/a",{WHOSE}'
    assert values_of(otlp.gate.records, info=True) == {
        f"up{{{labels}}}": 1.0,
        f'target_info{{dl_rank="3",instance="c",job="b/a",k8s_pod_name="gone",os_type="linux",{WHOSE}}}': 1.0,
    }


async def test_a_pod_that_is_learned_later_is_attached_to_series_that_are_known(otlp: OtlpApp) -> None:
    request = metrics(gauge("up", point(1.0)), resource={"k8s.pod.name": "late-0"})
    late = Pod(uid="u-late", name="late-0", workloads=[WorkloadReference(uid="w-late", name="late")])
    await otlp.export(request)
    otlp.source.context.directory.replace([late])
    await otlp.export(request)
    assert [labels_of(one).get("workload_uid") for one in series_of(otlp.gate.records)] == [None, "w-late"]


@pytest.mark.parametrize(
    ("name", "unit", "monotonic", "stored"),
    [
        ("train/loss", "", False, "train_loss"),
        ("a  b--c", "", False, "a_b_c"),
        ("9lives", "", False, "_9lives"),
        ("step.time", "s", False, "step_time_seconds"),
        ("mem", "By", False, "mem_bytes"),
        ("gpu.util", "%", False, "gpu_util_percent"),
        ("tput", "{token}/s", False, "tput_per_second"),
        ("tps", "tokens/s", False, "tps_tokens_per_second"),
        ("train/loss", "1", False, "train_loss_ratio"),
        ("requests.total", "", True, "requests_total"),
        ("sent", "By", True, "sent_bytes_total"),
        ("mem_bytes", "By", False, "mem_bytes"),
    ],
)
async def test_names_are_translated_as_the_collector_does(
    otlp: OtlpApp, name: str, unit: str, monotonic: bool, stored: str
) -> None:
    metric = counter(name, point(1), unit=unit) if monotonic else gauge(name, point(1.0), unit=unit)
    await otlp.export(metrics(metric))
    assert [key.partition("{")[0] for key in values_of(otlp.gate.records)] == [stored]


async def test_labels_keep_every_attribute_whatever_it_holds(otlp: OtlpApp) -> None:
    made = point(1.0)
    values = {
        "a.b": "x",
        "a/b": "y",
        "9": True,
        "__name__": "z",
        "list": [1, None, {"k": 1.5}],
        "none": None,
        "raw": b"\xff",
    }
    made.attributes.extend(attributes(values))
    await otlp.export(metrics(gauge("up", made), resource={}))
    (one,) = series_of(otlp.gate.records)
    assert labels_of(one) == {
        "__name__": "up",
        "a_b": "x;y",
        "key_9": "true",
        "key__name__": "z",
        "list": '[1,null,{"k":1.5}]',
        "raw": "/w==",
    }


async def test_values_and_times_arrive_as_they_are(otlp: OtlpApp) -> None:
    numbers = [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 2**53 + 1, -(2**63)]
    times = [NOW - 3 * 3600 * 10**9, 1, 10**9, 2**64 - 1, NOW, NOW + 1, NOW + 2, NOW + 3]
    points = [
        point(number, time, n=str(place)) for place, (number, time) in enumerate(zip(numbers, times, strict=True))
    ]
    await otlp.export(metrics(gauge("odd", *points)))
    found = {labels_of(one)["n"]: one.samples[0] for one in series_of(otlp.gate.records) if labels_of(one).get("n")}
    for place, (number, time) in enumerate(zip(numbers, times, strict=True)):
        assert raw(found[str(place)].value) == raw(float(number))
        assert found[str(place)].timestamp == time // MILLISECOND


async def test_samples_of_one_series_are_sorted_by_time(otlp: OtlpApp) -> None:
    times = [NOW + place * MILLISECOND for place in (3, 1, 2)]
    await otlp.export(metrics(gauge("up", *[point(float(time), time) for time in times])))
    stamps = [one.samples[0].timestamp for one in series_of(otlp.gate.records) if labels_of(one)["__name__"] == "up"]
    assert stamps == sorted(stamps)


async def test_no_recorded_value_is_the_stale_marker(otlp: OtlpApp) -> None:
    await otlp.export(metrics(gauge("up", point(None, flags=1))))
    (one,) = [one for one in series_of(otlp.gate.records) if labels_of(one)["__name__"] == "up"]
    assert raw(one.samples[0].value) == struct.pack("<Q", 0x7FF0000000000002)


async def test_a_bad_point_loses_no_neighbour(otlp: OtlpApp) -> None:
    broken = point(1.0, name="broken")
    broken.attributes[0].value.string_value = "x" * 70_000
    answer = await otlp.export(
        metrics(
            gauge("good", point(1.0), point(2.0, time=0), broken, point(None), point(3.0, n="3")),
            gauge("损失", point(1.0), point(2.0)),
            counter("delta", point(1), temporality=1),
            counter("unspecified", point(1), temporality=0),
            Metric(name="empty"),
            gauge("nothing"),
        )
    )
    assert values_of(otlp.gate.records) == {
        f"good{{{ATTACHED}}}": 1.0,
        f"good{{{ATTACHED}}}".replace("namespace", 'n="3",namespace'): 3.0,
    }
    count, message = rejected_of(answer.content)
    assert (count, otlp.gate.rejected, otlp.gate.received) == (7, 7, 9)
    for words in ("no time", "larger than", "no value", "损失", "deltatocumulative"):
        assert words in message


async def test_points_of_steps_become_rows(otlp: OtlpApp) -> None:
    held = [
        gauge("loss", point(0.5, megatron_iteration=12), point(0.4, NOW + 1, megatron_iteration=13)),
        gauge("grad.norm", point(2, megatron_iteration="12", dl_rank=1)),
        counter("tokens", point(9.0, megatron_iteration=12.0), temporality=1),
        gauge("layer", *[point(float(n), megatron_iteration=12, layer=n) for n in (0, 1)]),
        gauge("phase", point(1.0, step="forward")),
    ]
    await otlp.export(metrics(*held, resource={**RESOURCE, "nemo.run.id": "r1"}))
    rows = [record for record in otlp.gate.records if isinstance(record, StepMetrics)]
    assert {(row.row_step, row.origin.rank): row.values for row in rows} == {
        (12, None): {"loss": 0.5, "tokens": 9.0, "layer{layer=0}": 0.0, "layer{layer=1}": 1.0},
        (13, None): {"loss": 0.4},
        (12, 1): {"grad.norm": 2.0},
    }
    assert {(row.run_id, row.data_source, row.origin.pod_name) for row in rows} == {("r1", "otlp", "llama-0")}
    # A "step" that is no number is an attribute like any other.
    attached = ATTACHED.replace("workload_name", 'step="forward",workload_name')
    assert list(values_of(otlp.gate.records)) == [f"phase{{{attached}}}"]


async def test_a_name_that_comes_twice_for_a_step_begins_another_row(otlp: OtlpApp) -> None:
    await otlp.export(metrics(gauge("loss", point(0.5, step=1), point(0.4, NOW + 2000, step=1))))
    first, second = [record for record in otlp.gate.records if isinstance(record, StepMetrics)]
    assert (first.values, second.values) == ({"loss": 0.5}, {"loss": 0.4})
    assert first.sequence < second.sequence


async def test_steps_outside_64_bits_and_of_nobody_make_no_rows(otlp: OtlpApp) -> None:
    held = gauge("loss", point(0.5, step="9223372036854775808"), point(0.5, step=1))
    answer = await otlp.export(metrics(held, resource={}))
    assert rejected_of(answer.content)[0] == 1  # the step of nobody
    assert [labels_of(one) for one in series_of(otlp.gate.records)] == [
        {"__name__": "loss", "step": "9223372036854775808"}
    ]


def histogram(temporality: int = 2, **fields: Any) -> Metric:
    metric = Metric(name="step.duration", unit="s")
    metric.histogram.aggregation_temporality = temporality  # type: ignore[assignment]
    metric.histogram.data_points.add(time_unix_nano=NOW, **fields)
    return metric


async def test_classic_histograms_become_buckets_sum_and_count(otlp: OtlpApp) -> None:
    held = histogram(explicit_bounds=[0.5, 10, 1e9], bucket_counts=[1, 2, 0, 4], count=7, sum=12.5)
    await otlp.export(metrics(held, resource={}))
    assert values_of(otlp.gate.records) == {
        'step_duration_seconds_bucket{le="0.5"}': 1,
        'step_duration_seconds_bucket{le="10"}': 3,
        'step_duration_seconds_bucket{le="1000000000"}': 3,
        'step_duration_seconds_bucket{le="+Inf"}': 7,
        "step_duration_seconds_sum{}": 12.5,
        "step_duration_seconds_count{}": 7,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"explicit_bounds": [1, 2], "bucket_counts": [1, 2], "count": 3},
        {"explicit_bounds": [2, 1], "bucket_counts": [1, 1, 1], "count": 3},
        {"explicit_bounds": [1, 1], "bucket_counts": [1, 1, 1], "count": 3},
        {"explicit_bounds": [math.nan], "bucket_counts": [1, 1], "count": 2},
        {"explicit_bounds": [math.inf], "bucket_counts": [1, 1], "count": 2},
        {"explicit_bounds": [1], "bucket_counts": [1, 1], "count": 3},
        {"explicit_bounds": [1], "bucket_counts": [1, 1], "count": 2, "temporality": 1},
        {"explicit_bounds": [1], "bucket_counts": [1, 1], "count": 2, "temporality": 0},
    ],
)
async def test_histograms_that_make_no_sense_are_refused_alone(otlp: OtlpApp, fields: dict[str, Any]) -> None:
    answer = await otlp.export(metrics(histogram(**fields), gauge("good", point(1.0)), resource={}))
    assert values_of(otlp.gate.records) == {"good{}": 1.0}
    assert rejected_of(answer.content)[0] == 1


async def test_summaries_become_quantiles(otlp: OtlpApp) -> None:
    metric = Metric(name="latency")
    held = metric.summary.data_points.add(time_unix_nano=NOW, count=3, sum=6.0)
    held.quantile_values.add(quantile=0.5, value=2.0)
    held.quantile_values.add(quantile=1.0, value=math.nan)
    bad = metric.summary.data_points.add(time_unix_nano=NOW, count=3)
    bad.quantile_values.add(quantile=1.5, value=2.0)
    answer = await otlp.export(metrics(metric, resource={}))
    found = values_of(otlp.gate.records)
    assert list(found) == ['latency{quantile="0.5"}', 'latency{quantile="1"}', "latency_sum{}", "latency_count{}"]
    assert rejected_of(answer.content)[0] == 1


def exponential(scale: int, positive: list[int], offset: int, **fields: Any) -> Metric:
    metric = Metric(name="native")
    metric.exponential_histogram.aggregation_temporality = 2  # type: ignore[assignment]
    held = metric.exponential_histogram.data_points.add(time_unix_nano=NOW, scale=scale, **fields)
    held.positive.bucket_counts.extend(positive)
    held.positive.offset = offset
    return metric


@settings(deadline=None, max_examples=examples(100))
@given(
    scale=st.integers(-4, 20),
    offset=st.integers(-(2**20), 2**20),
    counts=st.lists(st.integers(0, 5), max_size=20),
    zeros=st.integers(0, 3),
)
async def test_exponential_histograms_become_native_ones(
    tmp_path_factory: pytest.TempPathFactory, scale: int, offset: int, counts: list[int], zeros: int
) -> None:
    otlp = OtlpApp(tmp_path_factory.mktemp("otlp"))
    held = exponential(scale, counts, offset, count=sum(counts) + zeros, zero_count=zeros, sum=1.5)
    await otlp.export(metrics(held, resource={}))
    (one,) = series_of(otlp.gate.records)
    (histogram,) = one.histograms
    check_histogram(histogram.SerializeToString())
    shift = max(0, scale - 8)
    expected: dict[int, int] = {}
    for place, count in enumerate(counts, offset):
        if count:
            expected[(place >> shift) + 1] = expected.get((place >> shift) + 1, 0) + count
    assert (histogram.schema, histogram.timestamp) == (scale - shift, NOW // MILLISECOND)
    assert histogram.count_int == sum(counts) + zeros
    found: dict[int, int] = {}
    count = 0
    if histogram.positive_spans:
        (span,) = histogram.positive_spans
        for place, delta in enumerate(histogram.positive_deltas, span.offset):
            count += delta
            if count:
                found[place] = count
    assert found == expected


@pytest.mark.parametrize(
    "held",
    [
        exponential(-5, [1], 0, count=1),
        exponential(0, [1], 0, count=2),
        exponential(0, [1], 2**31 - 1, count=1),
        exponential(0, [2**63, 2**63], 0, count=1),
        exponential(0, [1], 0, count=1, zero_threshold=math.nan),
    ],
    ids=["coarse", "count", "far", "overflow", "threshold"],
)
async def test_exponential_histograms_that_make_no_sense_are_refused_alone(otlp: OtlpApp, held: Metric) -> None:
    answer = await otlp.export(metrics(held, gauge("good", point(1.0)), resource={}))
    assert values_of(otlp.gate.records) == {"good{}": 1.0}
    assert rejected_of(answer.content)[0] == 1


async def test_large_resources_fill_the_table_sooner(tmp_path: Path) -> None:
    otlp = OtlpApp(tmp_path, cached_series=100)
    for number in range(20):
        large = {"service.name": "a", "command": f"{number}" + "x" * 50_000}
        await otlp.export(metrics(gauge("up", point(1.0)), resource=large))
    assert otlp.source._converter.table.size < 300  # type: ignore[attr-defined]


async def test_a_full_table_of_label_sets_is_cleared(tmp_path: Path) -> None:
    otlp = OtlpApp(tmp_path, cached_series=10)
    for first in range(0, 100, 20):
        await otlp.export(metrics(gauge("up", *[point(1.0, n=str(first + place)) for place in range(20)])))
    assert len(values_of(otlp.gate.records)) == 100
    assert otlp.source._converter.table.size <= 30  # type: ignore[attr-defined]


@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(
        st.tuples(
            st.text(max_size=5),
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats()),
            st.integers(0, 2**64 - 1),
            st.dictionaries(
                st.text(max_size=3),
                st.one_of(
                    st.none(),
                    st.booleans(),
                    st.integers(-(2**63), 2**63 - 1),
                    st.floats(),
                    st.text(max_size=3),
                    st.binary(max_size=3),
                ),
                max_size=3,
            ),
            st.sampled_from(["gauge", "counter", "delta"]),
        ),
        max_size=8,
    )
)
async def test_every_point_is_stored_or_counted(
    tmp_path_factory: pytest.TempPathFactory, held: list[tuple[str, Any, int, dict[str, Any], str]]
) -> None:
    otlp = OtlpApp(tmp_path_factory.mktemp("otlp"), target_info=False)
    made = []
    for name, value, time, keys, kind in held:
        one = point(value, time)
        one.attributes.extend(attributes(keys))
        made.append(
            gauge(name, one) if kind == "gauge" else counter(name, one, temporality=2 if kind == "counter" else 1)
        )
    answer = await otlp.export(metrics(*made))
    stored = sum(len(one.samples) for one in series_of(otlp.gate.records))
    stored += sum(len(record.values) for record in otlp.gate.records if isinstance(record, StepMetrics))
    rejected = rejected_of(answer.content)[0]
    assert stored + rejected == len(held)
    assert otlp.gate.received == len(held)
    assert otlp.gate.rejected == rejected
