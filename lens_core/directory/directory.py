"""The directory of pods, of the workloads that they belong to and of the devices that they hold.

One index in memory, replaced as a whole, so that a reader never sees half of a change; while nothing changes it
stays the same object, and so does every pod in it that did not change. It is fed by `Pod` records, whichever plugin
makes them; each feeder has a feed of its own, so that replacing one takes nothing from the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..base.deprecation import former_name
from ..base.self_metrics import SelfMetrics
from ..model.records import NOWHERE, Origin, Pod
from .index import Index, build_index, has_ended, key_of, merge_feeds

GRACE_SECONDS = 15 * 60.0
RECORDS_FEED = "records"
API_FEED = "api"
MAX_RECORDED_PODS = 100_000


class Directory:
    """Pods by uid, by (namespace, name) and by device; `cluster` completes every record's origin.

    A pod that ended or vanished is known for another `grace_seconds`, because its last samples and lines come late;
    a live pod of the same name or with the same device is found instead of it. `clock`: seconds since the epoch.
    """

    def __init__(
        self,
        cluster: str = "default",
        *,
        grace_seconds: float = GRACE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.cluster = cluster
        self.grace_seconds = grace_seconds
        self.index = Index()
        self._clock = clock
        self._feeds: dict[str, dict[str, Pod]] = {}
        self._fed_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        self._past: list[str] = []
        self._metrics: SelfMetrics | None = None

    learn = former_name("Directory.learn", "add_pods", since="1.3", removal="2.0")
    picture = former_name("Directory.picture", "index", since="1.3", removal="2.0")

    def expose(self, metrics: SelfMetrics) -> None:
        """Show size and age in Lens' own metrics."""
        self._metrics = metrics
        metrics.directory_pods.set_function(lambda: len(self.index.pods))
        metrics.directory_devices.set_function(lambda: len(self.index.by_device))

    def add_pods(self, pods: Iterable[Pod], feed: str = RECORDS_FEED) -> None:
        """Add or replace pods of one feed."""
        known = {key_of(pod): pod for pod in pods}
        self._feeds.setdefault(feed, {}).update(known)
        self._changed(feed)

    def record_pods(self, pods: Iterable[Pod]) -> None:
        """Learn pods that passed by as records, except those that a feed looks after itself; the newest are kept."""
        known = self._feeds.setdefault(RECORDS_FEED, {})
        fresh = {key: pod for pod in pods if (key := key_of(pod)) in known or key not in self.index.pods}
        for key, pod in fresh.items():
            known.pop(key, None)
            known[key] = pod
        for key in list(known)[: max(0, len(known) - MAX_RECORDED_PODS)]:
            del known[key]
        if fresh:
            self._changed(RECORDS_FEED)

    def replace(self, pods: Iterable[Pod], feed: str = RECORDS_FEED) -> None:
        """Forget all pods of one feed and take these."""
        self._feeds[feed] = {key_of(pod): pod for pod in pods}
        self._changed(feed)

    def forget(self, keys: Iterable[str], feed: str = RECORDS_FEED) -> None:
        """Pods of one feed are gone, by uid (namespace/name where there is none)."""
        known = self._feeds.setdefault(feed, {})
        for key in keys:
            known.pop(key, None)
        self._changed(feed)

    def forget_workload(self, uid: str) -> None:
        """Forget a workload that was deleted, and pods known for it alone; what collectors say of it stays."""
        for feed in (RECORDS_FEED, API_FEED):
            if feed in self._feeds:
                self._feeds[feed] = {
                    key: left for key, pod in self._feeds[feed].items() if (left := _without_workload(pod, uid))
                }
        kept = {key: pod for key, pod in self.index.pods.items() if _without_workload(pod, uid) is pod}
        self.index = build_index(kept, [key for key in self._past if key in kept])
        self._rebuild_index()

    def keep_feeds(self, feeds: Iterable[str]) -> None:
        """Forget what other feeds have said: their collectors are in the configuration no more."""
        wanted = set(feeds)
        for feed in [feed for feed in self._feeds if feed not in wanted]:
            del self._feeds[feed]
            self._fed_at.pop(feed, None)
            if self._metrics is not None:
                self._metrics.directory_age.remove(feed)
        self._rebuild_index()

    def confirm(self, feed: str) -> None:
        """Note that the content of a feed is still current, for the age of the cache."""
        self._fed_at[feed] = self._clock()

    def pods(self, feed: str | None = None) -> list[Pod]:
        """All pods, or those that one feed has given."""
        return list((self.index.pods if feed is None else self._feeds.get(feed, {})).values())

    def ages(self) -> dict[str, float]:
        """For every feed, the seconds since it last said something."""
        now = self._clock()
        return {feed: now - at for feed, at in self._fed_at.items()}

    def expire(self) -> None:
        """Drop the pods whose grace is over; called now and then."""
        due = self._clock() - self.grace_seconds
        if any(self._ended_at[key] <= due for key in self._past):
            self._rebuild_index()

    def _changed(self, feed: str) -> None:
        if feed not in self._fed_at and self._metrics is not None:
            age = self._metrics.directory_age.labels(feed)
            age.set_function(lambda: self.ages().get(feed, 0.0))
        self.confirm(feed)
        self._rebuild_index()

    def _rebuild_index(self) -> None:
        """Build a new index if it would differ from the present one."""
        now = self._clock()
        merged = merge_feeds(self._feeds.values())
        known = self._with_vanished(merged)
        over = [key for key, pod in known.items() if key not in merged or has_ended(pod)]
        ended_at = {key: self._ended_at.get(key, now) for key in over}
        pods = {
            key: pod for key, pod in known.items() if key not in ended_at or now - ended_at[key] < self.grace_seconds
        }
        past = sorted((key for key in over if key in pods), key=ended_at.__getitem__)
        for key in past[: max(0, len(past) - MAX_RECORDED_PODS)]:  # who sends ever new pods may not fill the memory
            del pods[key]
        past = past[-MAX_RECORDED_PODS:]
        self._ended_at = {key: at for key, at in ended_at.items() if key in pods or key in merged}
        if past != self._past or not _same(pods, self.index.pods):
            self._past = past
            self.index = build_index(pods, past)

    def _with_vanished(self, merged: Mapping[str, Pod]) -> dict[str, Pod]:
        """These pods (as the objects that are known already) and those that no feed knows any more."""
        before = self.index.pods
        known = {key: before[key] if before.get(key) == pod else pod for key, pod in merged.items()}
        names = {(pod.namespace, pod.name) for pod in known.values() if pod.uid}
        for key, pod in before.items():
            # A pod that was known by its name alone and has a uid by now has not vanished.
            if key not in known and (pod.uid or (pod.namespace, pod.name) not in names):
                known[key] = pod
        return known

    def find_pod(self, origin: Origin) -> Pod | None:
        """The pod of an origin: by uid, else by namespace and name, else by a name that only one pod has.

        A pod of the same name with another uid is another pod.
        """
        index = self.index
        if origin.pod_uid and (pod := index.by_uid.get(origin.pod_uid)):
            return pod
        if origin.namespace:
            found = index.by_name.get((origin.namespace, origin.pod_name))
        else:
            found = index.by_bare_name.get(origin.pod_name)
        return None if found is None or (origin.pod_uid and found.uid) else found

    def complete(self, origin: Origin) -> Origin:
        """Fill in what the sender did not know: the cluster, and of a known pod its uid, namespace and node.

        A workload is never filled in: which workloads a pod belongs to is resolved when somebody asks.
        """
        changes: dict[str, str] = {}
        if not origin.cluster:
            changes["cluster"] = self.cluster
        pod = self.find_pod(origin) if origin is not NOWHERE and (origin.pod_uid or origin.pod_name) else None
        if pod is not None:
            known = {"pod_uid": pod.uid, "pod_name": pod.name, "namespace": pod.namespace, "node": pod.node}
            changes.update({name: value for name, value in known.items() if value and not getattr(origin, name)})
        return msgspec.structs.replace(origin, **changes) if changes else origin

    def devices(self) -> dict[str, dict[str, dict[str, list[str]]]]:
        """node → device kind → device → [pod name, pod uid] (seed 003)."""
        answer: dict[str, dict[str, dict[str, list[str]]]] = {}
        for (node, kind, device), pod in self.index.by_device.items():
            answer.setdefault(node, {}).setdefault(kind, {})[device] = [pod.name, pod.uid]
        return answer

    def workloads_by_pod(self) -> dict[str, list[list[str]]]:
        """pod name → [[workload name, workload uid], …] (seed 003).

        Where several namespaces have a pod of one name, the keys of these are namespace/name.
        """
        namespaces: dict[str, set[str]] = {}
        for pod in self.index.pods.values():
            namespaces.setdefault(pod.name, set()).add(pod.namespace)
        answer: dict[str, list[list[str]]] = {}
        for pod in self.index.pods.values():
            is_shared = len(namespaces[pod.name]) > 1
            names = answer.setdefault(f"{pod.namespace}/{pod.name}" if is_shared else pod.name, [])
            names.extend(pair for workload in pod.workloads if (pair := [workload.name, workload.uid]) not in names)
        return answer


def _without_workload(pod: Pod, uid: str) -> Pod | None:
    """The pod without this workload and what is below it; None where it was known for nothing else."""
    gone = {uid}
    while below := {workload.uid for workload in pod.workloads if workload.parent_uid in gone} - gone:
        gone |= below
    left = [workload for workload in pod.workloads if workload.uid not in gone]
    if len(left) == len(pod.workloads):
        return pod
    return msgspec.structs.replace(pod, workloads=left) if left or pod.devices else None


def _same(pods: Mapping[str, Pod], before: Mapping[str, Pod]) -> bool:
    return len(pods) == len(before) and all(before.get(key) is pod for key, pod in pods.items())
