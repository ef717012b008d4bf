"""The directory: which pods there are, which workloads they belong to, which devices they hold.

One picture in memory, replaced as a whole, so that a reader never sees half of a change. It is fed by `Pod` records,
whichever plugin makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from .records import NOWHERE, Origin, Pod


class _Picture(msgspec.Struct, frozen=True):
    by_uid: Mapping[str, Pod]
    by_name: Mapping[tuple[str, str], Pod]


class Directory:
    """Pods by uid and by (namespace, name); `cluster` completes every record's origin."""

    def __init__(self, cluster: str = "default") -> None:
        self.cluster = cluster
        self._picture = _Picture({}, {})

    def learn(self, pods: Iterable[Pod]) -> None:
        """Add or replace pods."""
        by_uid = dict(self._picture.by_uid)
        for pod in pods:
            by_uid[pod.uid] = pod
        self._replace(by_uid)

    def replace(self, pods: Iterable[Pod]) -> None:
        """Forget all pods and take these."""
        self._replace({pod.uid: pod for pod in pods})

    def _replace(self, by_uid: dict[str, Pod]) -> None:
        self._picture = _Picture(by_uid, {(pod.namespace, pod.name): pod for pod in by_uid.values()})

    def find(self, origin: Origin) -> Pod | None:
        """The pod of an origin: by uid, else by namespace and name."""
        picture = self._picture
        if origin.pod_uid and (pod := picture.by_uid.get(origin.pod_uid)):
            return pod
        return picture.by_name.get((origin.namespace, origin.pod_name))

    def complete(self, origin: Origin) -> Origin:
        """Fill in what the sender did not know: the cluster, and of a known pod its uid, namespace and node.

        A workload is never filled in: which workloads a pod belongs to is resolved when somebody asks.
        """
        changes: dict[str, str] = {}
        if not origin.cluster:
            changes["cluster"] = self.cluster
        pod = self.find(origin) if origin is not NOWHERE else None
        if pod is not None:
            known = {"pod_uid": pod.uid, "pod_name": pod.name, "namespace": pod.namespace, "node": pod.node}
            changes.update({name: value for name, value in known.items() if value and not getattr(origin, name)})
        return msgspec.structs.replace(origin, **changes) if changes else origin

    def devices(self) -> dict[str, dict[str, dict[str, list[str]]]]:
        """node → device kind → device → [pod name, pod uid] (seed 003)."""
        answer: dict[str, dict[str, dict[str, list[str]]]] = {}
        for pod in self._picture.by_uid.values():
            for device in pod.devices:
                answer.setdefault(pod.node, {}).setdefault(device.kind, {})[device.id] = [pod.name, pod.uid]
        return answer

    def workloads(self) -> dict[str, list[list[str]]]:
        """pod name → [[workload name, workload uid], …] (seed 003)."""
        answer: dict[str, list[list[str]]] = {}
        for pod in self._picture.by_uid.values():
            names = [[workload.name, workload.uid] for workload in pod.workloads]
            answer.setdefault(pod.name, []).extend(names)
        return answer
