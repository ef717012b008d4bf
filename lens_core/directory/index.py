"""An immutable index of all pods: by uid, by name and by device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from ..model.records import Device, Pod, WorkloadReference

ENDED_PHASES = frozenset({"Succeeded", "Failed", "Deleted"})
DeviceKey: TypeAlias = tuple[str, str, str]


class Index(msgspec.Struct, frozen=True):
    """Pods by key, uid, (namespace, name), bare name (None: several have it) and (node, device kind, device id)."""

    pods: Mapping[str, Pod] = {}
    by_uid: Mapping[str, Pod] = {}
    by_name: Mapping[tuple[str, str], Pod] = {}
    by_bare_name: Mapping[str, Pod | None] = {}
    by_device: Mapping[DeviceKey, Pod] = {}


def key_of(pod: Pod) -> str:
    """Return the key of a pod: its uid; namespace/name where the uid is not known (the kubelet's devices)."""
    return pod.uid or f"{pod.namespace}/{pod.name}"


def has_ended(pod: Pod) -> bool:
    """Whether its containers will never run again."""
    return pod.phase in ENDED_PHASES


def build_index(pods: Mapping[str, Pod], ended: Iterable[str]) -> Index:
    """Index pods; a live pod wins its name and its devices over one of `ended` (keys, those ended first at first)."""
    past = [pods[key] for key in ended]
    over = {id(pod) for pod in past}
    live = [pod for pod in pods.values() if id(pod) not in over]
    by_name: dict[tuple[str, str], Pod] = {}
    by_bare_name: dict[str, Pod | None] = {}
    by_device: dict[DeviceKey, Pod] = {}
    for group in (past, live):
        names: dict[str, Pod | None] = {}
        for pod in group:
            by_name[pod.namespace, pod.name] = pod
            names[pod.name] = None if pod.name in names else pod
            for device in pod.devices:
                by_device[pod.node, device.kind, device.id] = pod
        by_bare_name.update(names)
    by_uid = {pod.uid: pod for pod in pods.values() if pod.uid}
    return Index(pods, by_uid, by_name, by_bare_name, by_device)


def workload_of(pod: Pod, which: str = "root") -> WorkloadReference | None:
    """The one workload that the series of a pod get: the topmost owner or the nearest, the first if there are more."""
    uids = {workload.uid for workload in pod.workloads}
    parents = {workload.parent_uid for workload in pod.workloads}
    for workload in pod.workloads:
        if which == "root" and workload.parent_uid not in uids:
            return workload
        if which == "nearest" and workload.uid not in parents:
            return workload
    return pod.workloads[0] if pod.workloads else None


def merge_feeds(feeds: Iterable[Mapping[str, Pod]]) -> dict[str, Pod]:
    """Merge all feeds: pods of one key are merged; those without a uid go to the live pod of their name."""
    found: dict[str, Pod] = {}
    nameless: list[Pod] = []
    for feed in feeds:
        for key, pod in feed.items():
            if not pod.uid:
                nameless.append(pod)
            else:
                found[key] = merge(found[key], pod) if key in found else pod
    if nameless:
        names = {(pod.namespace, pod.name): key for key, pod in found.items() if not has_ended(pod)}
        for pod in nameless:
            key = names.get((pod.namespace, pod.name), key_of(pod))
            found[key] = merge(found[key], pod) if key in found else pod
    return found


def merge(first: Pod, second: Pod) -> Pod:
    """Both pods' knowledge; where they contradict each other the second wins."""
    changes: dict[str, object] = {
        name: value for name in ("uid", "name", "namespace", "node", "phase") if (value := getattr(second, name))
    }
    changes["labels"] = {**first.labels, **second.labels}
    changes["workloads"] = _workloads(first.workloads, second.workloads)
    changes["devices"] = _devices(first.devices, second.devices)
    return msgspec.structs.replace(first, **changes)


def _workloads(first: list[WorkloadReference], second: list[WorkloadReference]) -> list[WorkloadReference]:
    both = {workload.uid: workload for workload in first}
    both.update((workload.uid, workload) for workload in second)
    return list(both.values())


def _devices(first: list[Device], second: list[Device]) -> list[Device]:
    return list({(device.kind, device.id): device for device in (*first, *second)}.values())
