"""An index of all pods: by uid, by name and by device; and how it is kept, one pod after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar, cast

import msgspec

from ..model.records import Device, Pod, WorkloadReference

ENDED_PHASES = frozenset({"Succeeded", "Failed", "Deleted"})
DeviceKey: TypeAlias = tuple[str, str, str]
SlotT = TypeVar("SlotT")


class Index(msgspec.Struct, frozen=True):
    """Pods by key, uid, (namespace, name), bare name (None: several have it) and (node, device kind, device id).

    A change makes a new object that shares these mappings: look something up, or copy them before you await anything.
    """

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


class _Claims(Generic[SlotT]):
    """The pods that claim a name or a device, and the one that has it."""

    def __init__(self, pods: Mapping[str, Pod], past: Mapping[str, None], *, is_for_one: bool) -> None:
        self.winners: dict[SlotT, Pod | None] = {}
        self._pods = pods
        self._past = past
        self._is_for_one = is_for_one
        # If several pods claim the same: the keys of the live ones and of the others, the newest claim at the end.
        self._rivals: dict[SlotT, tuple[dict[str, None], dict[str, None]]] = {}

    def add_claim(self, slot: SlotT, key: str) -> None:
        """Let a pod claim a slot."""
        if slot not in self.winners:
            self.winners[slot] = self._pods[key]
            return
        rivals = self._rivals.get(slot)
        if rivals is None:
            first = self.winners[slot]
            assert first is not None
            rivals = self._rivals[slot] = ({}, {})
            rivals[key_of(first) in self._past][key_of(first)] = None
        rivals[key in self._past][key] = None
        self.update_winner(slot, key)

    def remove_claim(self, slot: SlotT, key: str) -> None:
        """Let a pod claim a slot no more."""
        rivals = self._rivals.get(slot)
        if rivals is None:
            del self.winners[slot]
            return
        live, past = rivals
        live.pop(key, None)
        past.pop(key, None)
        self.update_winner(slot, key)
        if len(live) + len(past) == 1:
            del self._rivals[slot]

    def update_winner(self, slot: SlotT, key: str) -> None:
        """Choose again who has a slot that this pod claims, or has claimed."""
        live, past = self._rivals.get(slot) or ({key: None}, {})
        group = live or past
        is_open = self._is_for_one and len(group) > 1
        self.winners[slot] = None if is_open else self._pods[next(reversed(group))]


class IndexKeeper:
    """Adds pods to an index and removes them, at the cost of the pod alone.

    Several pods may claim a name or a device: a live one wins it over one that has ended, and the one that claimed it
    last over the others of its kind. A bare name that several pods have belongs to none.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.past: dict[str, None] = {}  # the keys of those that have ended or vanished
        self._by_uid: dict[str, Pod] = {}
        self._names = _Claims[tuple[str, str]](self.pods, self.past, is_for_one=False)
        self._bare_names = _Claims[str](self.pods, self.past, is_for_one=True)
        self._devices = _Claims[DeviceKey](self.pods, self.past, is_for_one=False)

    def make_index(self) -> Index:
        """Return the present index: a new object, so that who remembers something of it sees that it changed."""
        names, devices = self._names.winners, self._devices.winners
        return Index(
            self.pods,
            self._by_uid,
            cast("Mapping[tuple[str, str], Pod]", names),
            self._bare_names.winners,
            cast("Mapping[DeviceKey, Pod]", devices),
        )

    def put_pod(self, key: str, pod: Pod, *, is_past: bool) -> bool:
        """Add or replace a pod; returns whether anything changed."""
        known = self.pods.get(key)
        is_same_state = known is not None and (key in self.past) == is_past
        if is_same_state and known == pod:
            return False
        if known is not None and is_same_state and _slots(known) == _slots(pod):
            change = _Claims.update_winner
        else:
            self.remove_pod(key)
            change = _Claims.add_claim
        self.pods[key] = pod
        if is_past:
            self.past[key] = None
        if pod.uid:
            self._by_uid[pod.uid] = pod
        self._change_claims(change, key, pod)
        return True

    def remove_pod(self, key: str) -> bool:
        """Remove a pod; returns whether it was there."""
        pod = self.pods.get(key)
        if pod is None:
            return False
        self._change_claims(_Claims.remove_claim, key, pod)
        del self.pods[key]
        self.past.pop(key, None)
        if pod.uid:
            del self._by_uid[pod.uid]
        return True

    def _change_claims(self, change: Callable[[_Claims[Any], Any, str], None], key: str, pod: Pod) -> None:
        name, devices = _slots(pod)
        change(self._names, name, key)
        change(self._bare_names, pod.name, key)
        for device in devices:
            change(self._devices, device, key)


def _slots(pod: Pod) -> tuple[tuple[str, str], dict[DeviceKey, None]]:
    """The name and the devices that a pod claims."""
    devices = ((pod.node, device.kind, device.id) for device in pod.devices)
    return (pod.namespace, pod.name), dict.fromkeys(devices)


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
