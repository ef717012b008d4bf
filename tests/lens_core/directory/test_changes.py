"""A directory that takes one change after the other is the one that is built anew of all that was said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Device, Index, Pod, WorkloadReference
from lens_core.directory import directory as module
from lens_core.directory.directory import API_FEED, RECORDS_FEED, Directory
from lens_core.directory.index import has_ended, key_of, merge
from tests.generated import examples

GRACE = 60.0
LIMIT = 4


class Whole:
    """A directory that is computed from all feeds at each change."""

    def __init__(self, directory: Directory) -> None:
        self.now = 1000.0
        self.feeds: dict[str, dict[str, Pod]] = {}
        self.pods: dict[str, Pod] = {}
        self.ended_at: dict[str, float] = {}
        self._directory = directory

    def rebuild(self) -> None:
        merged = self._merge()
        known = dict(merged)
        names = {(pod.namespace, pod.name) for pod in known.values() if pod.uid}
        for key, pod in self.pods.items():
            if key not in known and (pod.uid or (pod.namespace, pod.name) not in names):
                known[key] = pod
        over = [key for key, pod in known.items() if key not in merged or has_ended(pod)]
        self.ended_at = {key: self.ended_at.get(key, self.now) for key in over}
        self.pods = {key: pod for key, pod in known.items() if key not in over or self.now - self.ended_at[key] < GRACE}
        self.ended_at = {key: at for key, at in self.ended_at.items() if key in self.pods or key in merged}

    def _merge(self) -> dict[str, Pod]:
        """All feeds; of several live pods of a name any may get what is known of the name alone."""
        found: dict[str, Pod] = {}
        for feed in self.feeds.values():
            for key, pod in feed.items():
                if pod.uid:
                    found[key] = merge(found[key], pod) if key in found else pod
        live: dict[tuple[str, str], list[str]] = {}
        for key, pod in found.items():
            if not has_ended(pod):
                live.setdefault((pod.namespace, pod.name), []).append(key)
        for feed in self.feeds.values():
            for own, pod in feed.items():
                if not pod.uid:
                    owners = live.get((pod.namespace, pod.name), [own])
                    chosen = self._directory._feeds._owners[own]
                    assert chosen in owners
                    found[chosen] = merge(found[chosen], pod) if chosen in found else pod
        return found


def build_index(pods: Mapping[str, Pod], ended: Iterable[str]) -> Index:
    """An index of all pods at once: a live pod wins its name and its devices over one that is over."""
    past = [pods[key] for key in ended]
    live = [pod for key, pod in pods.items() if key not in set(ended)]
    by_name: dict[tuple[str, str], Pod] = {}
    by_bare_name: dict[str, Pod | None] = {}
    by_device: dict[tuple[str, str, str], Pod] = {}
    for group in (past, live):
        names: dict[str, Pod | None] = {}
        for pod in group:
            by_name[pod.namespace, pod.name] = pod
            names[pod.name] = None if pod.name in names else pod
            for device in pod.devices:
                by_device[pod.node, device.kind, device.id] = pod
        by_bare_name.update(names)
    return Index(pods, {pod.uid: pod for pod in pods.values() if pod.uid}, by_name, by_bare_name, by_device)


PODS = st.builds(
    lambda uid, name, namespace, phase, devices, jobs: Pod(
        uid=uid,
        name=name,
        namespace=namespace,
        node="n1",
        phase=phase,
        devices=[Device(kind="gpu_id", id=device) for device in devices],
        workloads=[WorkloadReference(uid=job, name=job) for job in jobs],
    ),
    st.sampled_from(["", "u1", "u2", "u3", "u4"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["Running", "Running", "Failed"]),
    st.lists(st.sampled_from("012"), max_size=3),
    st.lists(st.sampled_from(["j1", "j2"]), max_size=2, unique=True),
)
GIVEN = st.lists(PODS, max_size=4, unique_by=key_of)
FEED = st.sampled_from(["kubelet", "k8s", API_FEED])
CHANGES = st.one_of(
    st.tuples(st.just("replace"), FEED, GIVEN),
    st.tuples(st.just("learn"), FEED, GIVEN),
    st.tuples(st.just("record"), st.just(RECORDS_FEED), GIVEN),
    st.tuples(st.just("forget"), FEED, GIVEN),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from([1.0, 30.0, 61.0])),
    st.tuples(st.just("keep"), FEED, st.just(None)),
)


def apply_change(directory: Directory, whole: Whole, what: str, feed: str, given: Any) -> None:
    said = whole.feeds.setdefault(feed, {}) if what in ("learn", "record", "forget") else {}
    if what == "replace":
        directory.replace(given, feed)
        whole.feeds[feed] = {key_of(pod): pod for pod in given}
    elif what == "learn":
        directory.learn(given, feed)
        said.update({key_of(pod): pod for pod in given})
    elif what == "record":
        fresh = {key: pod for pod in given if (key := key_of(pod)) in said or key not in whole.pods}
        directory.record_pods(given)
        for key, pod in fresh.items():
            said.pop(key, None)
            said[key] = pod
        for key in list(said)[: max(0, len(said) - LIMIT)]:
            del said[key]
    elif what == "forget":
        directory.forget([key_of(pod) for pod in given], feed)
        for pod in given:
            said.pop(key_of(pod), None)
    elif what == "wait":
        whole.now += given
        directory.expire()
    else:
        directory.keep_feeds([feed, RECORDS_FEED])
        whole.feeds = {name: pods for name, pods in whole.feeds.items() if name in (feed, RECORDS_FEED)}


@given(st.lists(CHANGES, max_size=25))
@settings(deadline=None, max_examples=examples(200))
def test_changes_one_after_the_other_make_what_is_built_anew(done: list[tuple[str, str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_RECORDED_PODS", LIMIT)
        directory = Directory(grace_seconds=GRACE, clock=lambda: whole.now)
        whole = Whole(directory)
        for what, feed, given_ in done:
            before = directory.index
            held = {key: id(pod) for key, pod in before.pods.items()}
            apply_change(directory, whole, what, feed, given_)
            whole.rebuild()
            over = [key for key in whole.pods if key in whole.ended_at]
            if len(over) <= LIMIT:
                assert directory.index.pods == whole.pods
            else:
                # Who sends ever new pods is bounded: the first that ended are dropped before their time.
                whole.pods = dict(directory.index.pods)
                dropped = [key for key in over if key not in whole.pods]
                for key in dropped:
                    del whole.ended_at[key]
                whole.ended_at.update((key, 0.0) for key in dropped if key in directory._feeds.merged)
            index = directory.index
            anew = build_index(index.pods, list(directory._keeper.past))
            assert index == anew
            assert set(directory._keeper.past) == {key for key in index.pods if key in directory._ended_at}
            if index is before:
                assert held == {key: id(pod) for key, pod in index.pods.items()}


def test_a_known_pod_that_passes_again_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory()
    pods = [Pod(uid=f"u{number}", name=f"n{number}", namespace="ml", node="n1") for number in range(1000)]
    directory.record_pods(pods)
    index = directory.index
    placed: list[str] = []
    place = Directory._place_pod

    def note_and_place(self: Directory, key: str, pod: Pod | None, now: float) -> bool:
        placed.append(key)
        return place(self, key, pod, now)

    monkeypatch.setattr(Directory, "_place_pod", note_and_place)
    directory.record_pods([Pod(uid="u5", name="n5", namespace="ml", node="n1")])
    assert placed == []
    assert directory.index is index
    directory.record_pods([Pod(uid="u5", name="n5", namespace="ml", node="n2")])
    assert placed == ["u5"]
