"""The directory of pods, of the workloads that they belong to and of the devices that they hold.

One index in memory; while nothing changes it stays the same object, and so does every pod in it that did not change. A
change costs what it changes: a pod of a hundred thousand costs as much as one of ten. The directory is fed by `Pod`
records, whichever plugin makes them; each feeder has a feed of its own, so that replacing one takes nothing from the
others.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from ..base.deprecation import former_name
from ..base.self_metrics import SelfMetrics
from ..model.records import NOWHERE, Origin, Pod
from .feeds import Changes, Feeds, name_key
from .index import Index, IndexKeeper, has_ended, key_of

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
        self._feeds = Feeds()
        self._keeper = IndexKeeper()
        self._fed_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        self._in_grace: OrderedDict[str, None] = OrderedDict()  # those of the index that are over, the first one first
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
        self._changed(feed, self._feeds.change_pods(feed, {key_of(pod): pod for pod in pods}))

    def record_pods(self, pods: Iterable[Pod]) -> None:
        """Learn pods that passed by as records, except those that a feed looks after itself; the newest are kept."""
        known = self._feeds.content(RECORDS_FEED)
        fresh = {key: pod for pod in pods if (key := key_of(pod)) in known or key not in self.index.pods}
        changes = self._feeds.change_pods(RECORDS_FEED, fresh)
        if fresh:
            changes.update(self._feeds.limit_pods(RECORDS_FEED, MAX_RECORDED_PODS))
            self._changed(RECORDS_FEED, changes)

    def replace(self, pods: Iterable[Pod], feed: str = RECORDS_FEED) -> None:
        """Forget all pods of one feed and take these."""
        self._changed(feed, self._feeds.replace_pods(feed, pods))

    def forget(self, keys: Iterable[str], feed: str = RECORDS_FEED) -> None:
        """Pods of one feed are gone, by uid (namespace/name where there is none)."""
        self._changed(feed, self._feeds.change_pods(feed, dict.fromkeys(keys)))

    def end_grace(self, keys: Iterable[str]) -> None:
        """Drop pods that no feed lists any more, as their grace would."""
        gone = [key for key in keys if key not in self._feeds.merged and self._remove_pod(key)]
        self._apply({}, has_changed=bool(gone))

    def forget_workload(self, uid: str) -> None:
        """Forget a workload that was deleted, and pods known for it alone; what collectors say of it stays."""
        changes: Changes = {}
        for feed in (RECORDS_FEED, API_FEED):
            content = self._feeds.content(feed)
            left = {key: _without_workload(pod, uid) for key, pod in content.items()}
            less = {key: pod for key, pod in left.items() if pod is not content[key]}
            if less:
                changes.update(self._feeds.change_pods(feed, less))
        kept = self._keeper.pods.items()
        gone = [key for key, pod in kept if key not in self._feeds.merged and _without_workload(pod, uid) is not pod]
        for key in gone:
            self._remove_pod(key)
            changes.pop(key, None)
        self._apply(changes, has_changed=bool(gone))

    def keep_feeds(self, feeds: Iterable[str]) -> None:
        """Forget what other feeds have said: their collectors are in the configuration no more."""
        wanted = set(feeds)
        changes: Changes = {}
        for feed in [feed for feed in self._feeds.names() if feed not in wanted]:
            changes.update(self._feeds.remove_feed(feed))
            self._fed_at.pop(feed, None)
            if self._metrics is not None:
                self._metrics.directory_age.remove(feed)
        self._apply(changes)

    def confirm(self, feed: str) -> None:
        """Note that the content of a feed is still current, for the age of the cache."""
        self._fed_at[feed] = self._clock()

    def pods(self, feed: str | None = None) -> list[Pod]:
        """All pods, or those that one feed has given."""
        return list((self.index.pods if feed is None else self._feeds.content(feed)).values())

    def ages(self) -> dict[str, float]:
        """For every feed, the seconds since it last said something."""
        now = self._clock()
        return {feed: now - at for feed, at in self._fed_at.items()}

    def expire(self) -> None:
        """Drop the pods whose grace is over; called now and then."""
        self._apply({})

    def _changed(self, feed: str, changes: Changes) -> None:
        if feed not in self._fed_at and self._metrics is not None:
            age = self._metrics.directory_age.labels(feed)
            age.set_function(lambda: self.ages().get(feed, 0.0))
        self.confirm(feed)
        self._apply(changes)

    def _apply(self, changes: Changes, has_changed: bool = False) -> None:
        """Take merged pods that changed into the index, and those whose grace is over out of it."""
        now = self._clock()
        for key, pod in changes.items():
            has_changed |= self._place_pod(key, pod, now)
        while self._in_grace:
            key = next(iter(self._in_grace))
            is_surplus = len(self._in_grace) > MAX_RECORDED_PODS  # who sends ever new pods may not fill the memory
            if not is_surplus and now - self._ended_at[key] < self.grace_seconds:
                break
            has_changed |= self._remove_pod(key)
        if has_changed:
            self.index = self._keeper.make_index()

    def _place_pod(self, key: str, pod: Pod | None, now: float) -> bool:
        """Take one merged pod into the index (None: no feed knows it any more); returns whether the index changed."""
        known = self._keeper.pods.get(key)
        is_renamed = False
        if pod is None:
            if known is None or (not known.uid and self._feeds.has_named(name_key(known))):
                return self._remove_pod(key)  # its grace was over, or it is known by its uid now
            pod = known
        elif pod.uid and (name := name_key(pod)) in self._keeper.pods and name not in self._feeds.merged:
            is_renamed = self._remove_pod(name)
        if key in self._feeds.merged and not has_ended(pod):
            self._ended_at.pop(key, None)
            self._in_grace.pop(key, None)
            return self._keeper.put_pod(key, pod, is_past=False) or is_renamed
        if key not in self._ended_at:
            self._ended_at[key] = now
            self._in_grace[key] = None
        elif key not in self._in_grace:
            return is_renamed  # it ended long ago, and is listed still
        return self._keeper.put_pod(key, pod, is_past=True) or is_renamed

    def _remove_pod(self, key: str) -> bool:
        """Take a pod out of the index; one that is listed still stays known as ended."""
        self._in_grace.pop(key, None)
        if key not in self._feeds.merged:
            self._ended_at.pop(key, None)
        return self._keeper.remove_pod(key)

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
