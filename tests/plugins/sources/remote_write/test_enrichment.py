from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sources.remote_write.request import split_request
from lens_plugins.sources.remote_write.settings import RemoteWriteSettings

from lens_core import Device, Pod
from tests.generated import examples
from tests.plugins.sources.remote_write.conftest import JOB, PODS, Receiver
from tests.plugins.sources.remote_write.forms import Forwarder, as_body
from tests.plugins.sources.remote_write.wire import Histogram, WriteRequest, labels_of, packed, request, series

NOW = 1_795_000_000_000
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
ATTACHED = {"pod_name": "llama-0", "pod_uid": "u-a", "workload_name": "llama", "workload_uid": "w-job"}


@pytest.mark.parametrize(
    "labels",
    [
        {"primus_lens_node_name": "n1", "gpu_id": "0"},
        {"node": "n1", "gpu": "0", "pod": "dcgm-exporter"},
        {"node": "n1", "device": "mlx5_0"},
        {"node": "n1", "device": "eth0", "namespace": "ml", "pod": "llama-0"},
        {"namespace": "ml", "pod": "llama-0"},
        {"namespace": "ml", "pod_name": "llama-0"},
        {"exported_namespace": "ml", "exported_pod": "llama-0", "namespace": "monitoring", "pod": "exporter"},
        {"pod": "llama-0"},
        {"pod": "llama-0", "uid": "u-a"},
        {"pod_uid": "u-a"},
    ],
)
async def test_series_finds_its_pod(receiver: Receiver, labels: dict[str, str]) -> None:
    (one,) = (await receiver.take(request(series({"__name__": "up", **labels}, (1, NOW))))).timeseries
    assert labels_of(one) == {"__name__": "up", **labels, **ATTACHED}
    names = [label.name for label in one.labels]
    assert names == sorted(names)


@pytest.mark.parametrize(
    "labels",
    [
        {"job": "node"},
        {"gpu_id": "0"},
        {"node": "n2", "gpu_id": "0"},
        {"namespace": "other", "pod": "llama-0"},
        {"pod": "twin"},
        {"namespace": "ml", "pod": "llama-0", "uid": "recreated"},
        {"exported_pod": "gone", "namespace": "ml", "pod": "llama-0"},
    ],
)
async def test_series_of_an_unknown_pod_goes_on_unchanged(receiver: Receiver, labels: dict[str, str]) -> None:
    body = request(series(dict(sorted({"__name__": "up", **labels}.items())), (1, NOW)))
    message = await receiver.take(body)
    assert message.SerializeToString() == body
    text = receiver.metrics.exposition().decode()
    assert 'lens_remote_write_series_total{result="unattached"} 1.0' in text


async def test_labels_of_ours_are_set_once(receiver: Receiver) -> None:
    labels = {"__name__": "up", "namespace": "ml", "pod": "llama-0", "workload_uid": "wrong", "pod_name": "wrong"}
    (one,) = (await receiver.take(request(series(labels, (1, NOW))))).timeseries
    assert len(one.labels) == len(labels_of(one))
    assert labels_of(one) == {**labels, **ATTACHED}


async def test_pod_without_workloads_gives_its_name_alone(receiver: Receiver) -> None:
    labels = {"__name__": "up", "namespace": "ml", "pod": "lonely"}
    (one,) = (await receiver.take(request(series(labels, (1, NOW))))).timeseries
    assert labels_of(one) == {**labels, "pod_name": "lonely", "pod_uid": "u-b"}


async def test_nearest_workload_is_a_setting(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, RemoteWriteSettings(workload="nearest"))
    (one,) = (await receiver.take(request(series({"__name__": "up", "pod_uid": "u-a"}, (1, NOW))))).timeseries
    assert labels_of(one)["workload_uid"] == "w-set"


async def test_copies_as_the_seed_makes_them(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, RemoteWriteSettings(copies="only"))
    known = series({"__name__": "gpu_power", "pod_uid": "u-a"}, (1, NOW))
    unknown = series({"__name__": "gpu_power", "pod": "who"}, (1, NOW))
    idle = series({"__name__": "gpu_power", "pod_uid": "u-b"}, (1, NOW))
    message = await receiver.take(request(known, unknown, idle))
    assert [(labels_of(one)["__name__"], labels_of(one)["workload_uid"]) for one in message.timeseries] == [
        ("workload_gpu_power", "w-set"),
        ("workload_gpu_power", "w-job"),
    ]
    report = receiver_drops(receiver)
    assert report["by_reason"] == {"missing_pod_info": 1, "no_workload_found": 1}
    assert [drop["reason"] for drop in report["recent"]] == ["no_workload_found", "missing_pod_info"]


def receiver_drops(receiver: Receiver) -> Any:
    return receiver.source.drops.report()  # type: ignore[attr-defined]


async def test_copies_beside_the_series(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, RemoteWriteSettings(copies="also"))
    body = request(series({"__name__": "up", "pod_uid": "u-a"}, (1, NOW)), series({"__name__": "up"}, (1, NOW)))
    message = await receiver.take(body)
    names = [labels_of(one)["__name__"] for one in message.timeseries]
    assert names == ["up", "workload_up", "workload_up", "up"]


@pytest.mark.parametrize("name", ["gpu_power", "DCGM_FI_DEV_GPU_TEMP", "node_cpu_utilization_ratio"])
async def test_negative_samples_of_gauges_that_have_none_are_dropped(receiver: Receiver, name: str) -> None:
    samples = [(-1.0, NOW), (-0.0, NOW + 1), (STALE, NOW + 2), (5.0, NOW + 3)]
    both = [series({"__name__": name}, *samples), series({"__name__": name, "a": "b"}, (-3.5, NOW))]
    message = await receiver.take(request(*both))
    assert [[sample.timestamp for sample in one.samples] for one in message.timeseries] == [[NOW + 1, NOW + 2, NOW + 3]]
    assert receiver_drops(receiver)["by_reason"] == {"negative": 2}
    answer = await receiver.client().get("/api/v1/remote-write/drops")
    newest = answer.json()["recent"][0]
    assert (newest["metric_name"], newest["labels"], newest["reason"]) == (name, {"a": "b"}, "negative")
    assert (receiver.gate.received, answer.json()["total"]) == (2, 2)


async def test_other_negative_samples_stay(receiver: Receiver) -> None:
    body = request(series({"__name__": "temperature_celsius"}, (-40.0, NOW)))
    assert (await receiver.take(body)).SerializeToString() == body


async def test_every_kind_of_number_keeps_its_bits(receiver: Receiver) -> None:
    patterns = [0x7FF0000000000002, 0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0x7FF0000000000000, 1]
    values = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in patterns]
    for name in ("up", "gpu_power"):
        for _ in range(2):
            body = request(*(series({"__name__": name, "n": str(n)}, (v, NOW)) for n, v in enumerate(values)))
            assert (await receiver.take(body)).SerializeToString() == body


async def test_histograms_exemplars_and_metadata_pass_untouched(receiver: Receiver) -> None:
    histogram = Histogram(
        count_int=3, sum=2.5, schema=3, zero_count_int=1, positive_spans=[{"offset": 0, "length": 2}],
        positive_deltas=[1, 0], timestamp=NOW,
    )  # fmt: skip
    exemplar = {"labels": [{"name": "trace_id", "value": "x"}], "value": 1.0, "timestamp": NOW}
    metadata = [{"type": 1, "metric_family_name": "up", "help": "Is it up?"}]
    labels = {"__name__": "up", "pod_uid": "u-a"}
    body = request(series(labels, histograms=[histogram]), series(labels, exemplars=[exemplar]), metadata=metadata)
    message = await receiver.take(body)
    before = WriteRequest.FromString(body)
    assert list(message.metadata) == list(before.metadata)
    for one, was in zip(message.timeseries, before.timeseries, strict=True):
        assert (list(one.histograms), list(one.exemplars)) == (list(was.histograms), list(was.exemplars))
        assert labels_of(one)["workload_uid"] == "w-job"
    record = receiver.gate.records[-1]
    assert (record.series, record.samples, record.histograms, record.exemplars) == (2, 0, 1, 1)  # type: ignore[attr-defined]


async def test_what_the_directory_learns_later_holds_for_the_next_request(receiver: Receiver) -> None:
    body = request(series({"__name__": "up", "gpu_id": "7", "node": "n9"}, (1, NOW)))
    assert "pod_name" not in labels_of((await receiver.take(body)).timeseries[0])
    late = Pod(
        uid="u-z", name="late", namespace="ml", node="n9", workloads=[JOB], devices=[Device(kind="gpu_id", id="7")]
    )
    receiver.directory.add_pods([late], "test")
    assert labels_of((await receiver.take(body)).timeseries[0])["pod_uid"] == "u-z"
    receiver.directory.add_pods([Pod(uid="u-y", name="other")], "test")
    assert labels_of((await receiver.take(body)).timeseries[0])["pod_uid"] == "u-z"
    receiver.directory.grace_seconds = 0
    receiver.directory.replace([], "test")
    assert (await receiver.take(body)).SerializeToString() == body


async def test_unsorted_and_empty_labels_are_put_right(receiver: Receiver) -> None:
    (one,) = (
        await receiver.take(request(series({"z": "1", "empty": "", "__name__": "up", "a": "2"}, (1, NOW))))
    ).timeseries
    assert [label.name for label in one.labels] == ["__name__", "a", "z"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([("a", "b")], "no_metric_name"),
        ([], "no_metric_name"),
        ([("__name__", "")], "no_metric_name"),
        ([("__name__", "up"), ("a", "1"), ("a", "2")], "duplicate_label"),
        ([("__name__", "up"), ("", "1")], "empty_label_name"),
    ],
)
async def test_what_kills_stores_is_refused_and_its_neighbours_live(
    receiver: Receiver, bad: list[tuple[str, str]], reason: str
) -> None:
    wrong = series({}, (1, NOW))
    for name, value in bad:
        wrong.labels.add(name=name, value=value)
    answer = await receiver.write(packed(request(series({"__name__": "good"}, (1, NOW)), wrong)))
    assert answer.status_code == 400
    assert "1 series refused" in answer.json()["message"]
    assert [labels_of(one) for one in receiver.last().timeseries] == [{"__name__": "good"}]
    assert receiver_drops(receiver)["by_reason"] == {reason: 1}
    assert (receiver.gate.received, receiver.gate.rejected) == (2, 1)


names = st.sampled_from(["__name__", "a", "b", "pod", "pod_uid", "namespace", "workload_uid", "x", "\u00e9\u20ac"])
# Values that look like the end of a sample try whether boundaries are guessed.
values = st.one_of(
    st.text(max_size=4),
    st.sampled_from(
        ["llama-0", "u-a", "ml", "\x12\x10\x09" + "\x01" * 8 + "\x10", "\x12\x07\x10", "v" * 200, "v" * 20000]
    ),
)
stamps = st.one_of(st.just(NOW), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 2**35, 2**42 - 1, 2**42]))
some_samples = st.lists(st.tuples(st.floats(width=64), stamps), min_size=0, max_size=3)
some_series = st.lists(st.tuples(st.dictionaries(names, values, max_size=6), some_samples), min_size=1, max_size=4)


@settings(max_examples=examples(200), deadline=None)
@given(some_series)
def test_each_form_and_the_library_agree(
    form: Any, given_series: list[tuple[dict[str, str], list[tuple[float, int]]]]
) -> None:
    forwarder = Forwarder(form)
    all_series = [series({"__name__": "up", **labels}, *samples) for labels, samples in given_series]
    raw = split_request(request(*all_series), "1.0").series
    orders = [range(len(raw)), range(len(raw)), range(len(raw) - 1, -1, -1), range(0, len(raw), 2), range(len(raw))]
    for order in orders:  # cold, then from the cache, then against what is expected to come next
        batch = forwarder.forward(as_body(raw[index] for index in order))
        message = WriteRequest.FromString(bytes(batch.view()))
        wanted = [one for index in order if labels_of(one := all_series[index])["__name__"]]
        assert len(message.timeseries) == len(wanted) == batch.series
        for one, was in zip(message.timeseries, wanted, strict=True):
            assert [sample.SerializeToString() for sample in one.samples] == [
                sample.SerializeToString() for sample in was.samples
            ]
            kept = {name: value for name, value in labels_of(was).items() if value}
            found = labels_of(one)
            pod = next((known for known in PODS if known.uid == found.get("pod_uid")), None)
            if pod is None or ("pod_uid" in kept and "pod_name" not in found):
                assert found == kept
            assert [label.name for label in one.labels] == sorted(found)
            assert {name: found[name] for name in kept.keys() - ATTACHED.keys()} == {
                name: kept[name] for name in kept.keys() - ATTACHED.keys()
            }
