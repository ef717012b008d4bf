from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Device, Origin, Pod, WorkloadReference
from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from lens_core.model.directory_document import json_of_pods, pods_of_json, pods_of_object

JOB = WorkloadReference(uid="w1", name="job")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pod(
    uid: str, name: str, phase: str = "Running", *devices: str, workloads: tuple[WorkloadReference, ...] = ()
) -> Pod:
    return Pod(
        uid=uid,
        name=name,
        namespace="ml",
        node="n1",
        phase=phase,
        workloads=list(workloads),
        devices=[Device(kind="gpu_id", id=device) for device in devices],
    )


def test_index_stays_the_same_object_while_nothing_changes() -> None:
    directory = Directory()
    directory.replace([pod("1", "a")], "k8s")
    index = directory.index
    directory.replace([pod("1", "a")], "k8s")
    assert directory.index is index
    directory.add_pods([pod("2", "b")], "k8s")
    assert directory.index is not index
    assert directory.index.by_uid["1"] is index.by_uid["1"]


def test_feeds_do_not_take_from_each_other() -> None:
    directory = Directory(grace_seconds=0)
    directory.replace([pod("1", "a", workloads=(JOB,))], "k8s")
    directory.replace(
        [Pod(uid="", name="a", namespace="ml", node="n1", devices=[Device(kind="gpu_id", id="3")])], "kubelet"
    )
    assert directory.devices() == {"n1": {"gpu_id": {"3": ["a", "1"]}}}
    assert directory.workloads_by_pod() == {"a": [["job", "w1"]]}
    directory.replace([], "kubelet")
    assert directory.devices() == {}
    assert directory.workloads_by_pod() == {"a": [["job", "w1"]]}


def test_gone_pod_is_known_for_its_grace_and_its_device_goes_to_the_next() -> None:
    clock = Clock()
    directory = Directory(grace_seconds=60, clock=clock)
    directory.replace([pod("1", "a", "Running", "0", "1")], "k8s")
    directory.replace([pod("2", "b", "Running", "0")], "k8s")
    assert directory.devices() == {"n1": {"gpu_id": {"0": ["b", "2"], "1": ["a", "1"]}}}
    clock.now += 61
    directory.expire()
    assert directory.devices() == {"n1": {"gpu_id": {"0": ["b", "2"]}}}
    assert directory.find_pod(Origin(pod_uid="1")) is None


def test_pod_that_ended_leaves_after_its_grace_although_it_is_still_listed() -> None:
    clock = Clock()
    directory = Directory(grace_seconds=60, clock=clock)
    for _ in range(3):
        directory.replace([pod("1", "a", "Succeeded")], "k8s")
        clock.now += 25
    assert directory.find_pod(Origin(pod_uid="1"))
    clock.now += 25
    directory.replace([pod("1", "a", "Succeeded")], "k8s")
    assert not directory.pods()
    directory.expire()
    assert not directory.pods()


def test_new_pod_of_the_same_name_is_another_pod() -> None:
    directory = Directory()
    directory.replace([pod("1", "a")], "k8s")
    directory.replace([pod("2", "a")], "k8s")
    found = directory.find_pod(Origin(pod_name="a", namespace="ml"))
    assert found is not None
    assert found.uid == "2"
    assert directory.find_pod(Origin(pod_name="a", namespace="ml", pod_uid="3")) is None


def test_name_without_namespace_counts_only_if_one_pod_has_it() -> None:
    directory = Directory()
    directory.add_pods([pod("1", "a")], "k8s")
    assert directory.find_pod(Origin(pod_name="a")) is directory.index.by_uid["1"]
    directory.add_pods([Pod(uid="2", name="a", namespace="other")], "k8s")
    assert directory.find_pod(Origin(pod_name="a")) is None
    completed = directory.complete(Origin(pod_name="a", namespace="other"))
    assert (completed.pod_uid, completed.cluster) == ("2", "default")


def test_passing_pods_are_met_but_never_against_the_feed_that_looks_after_them() -> None:
    directory = Directory(grace_seconds=0)
    directory.replace([pod("1", "a")], "k8s")
    directory.record_pods([pod("1", "a"), pod("2", "b")])
    directory.replace([], "k8s")
    assert [known.uid for known in directory.pods()] == ["2"]


def test_feeds_that_are_configured_no_more_are_forgotten() -> None:
    directory = Directory(grace_seconds=0)
    metrics = SelfMetrics()
    directory.expose(metrics)
    directory.replace([pod("1", "a")], "k8s")
    directory.replace([pod("2", "b")], "file")
    assert 'lens_directory_age_seconds{feed="k8s"}' in metrics.exposition().decode()
    directory.keep_feeds(["file"])
    assert [known.uid for known in directory.pods()] == ["2"]
    text = metrics.exposition().decode()
    assert 'feed="k8s"' not in text
    assert "lens_directory_pods 1.0" in text
    directory.replace([pod("1", "a")], "k8s")
    assert 'feed="k8s"' in metrics.exposition().decode()


names = st.text(alphabet="abc", min_size=1, max_size=2)
some_pods = st.lists(
    st.builds(
        lambda uid, name, ended, gpu: pod(uid, name, "Failed" if ended else "Running", gpu),
        names,
        names,
        st.booleans(),
        st.sampled_from("01"),
    ),
    max_size=6,
)


@given(st.lists(some_pods, max_size=5))
def test_indexes_agree_with_the_pods(generations: list[list[Pod]]) -> None:
    directory = Directory(clock=Clock())
    for pods in generations:
        directory.replace(pods, "k8s")
        index = directory.index
        assert {known.uid for known in pods} <= index.pods.keys()
        for mapping in (index.by_uid, index.by_name, index.by_device):
            assert all(found is index.pods[found.uid] for found in mapping.values())
        live = {known.uid for known in directory.pods("k8s") if known.phase == "Running"}
        for known in (index.pods[uid] for uid in live):
            assert index.by_device["n1", "gpu_id", known.devices[0].id].uid in live
            assert index.by_name["ml", known.name].uid in live


@given(some_pods)
def test_document_comes_back(pods: list[Pod]) -> None:
    assert pods_of_json(json_of_pods(pods)) == pods


def test_yaml_numbers_are_device_ids() -> None:
    (found,) = pods_of_object({"pods": [{"name": "a", "devices": [{"kind": "gpu_id", "id": 0}]}]})
    assert found.devices == [Device(kind="gpu_id", id="0")]


def test_pods_that_are_gone_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lens_core.directory.directory.MAX_RECORDED_PODS", 10)
    directory = Directory()
    for number in range(100):
        directory.replace([Pod(uid=f"u{number}", name=f"n{number}")], "feed")
    assert len(directory.pods()) <= 11
    assert directory.find_pod(Origin(pod_uid="u99")) is not None
