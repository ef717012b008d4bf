"""The labels that a pod gives to its series, and where among the others they stand."""

from __future__ import annotations

from collections.abc import Collection

from lens_core import Pod
from lens_core.directory.index import workload_of

from .labels import Label, make_label

OF_PODS = ("pod_name", "pod_uid")
OURS = (*OF_PODS, "workload_name", "workload_uid")
NO_POD = 0


class PodLabelMaker:
    """Numbers pods (the same object keeps its number while it is in the directory) and makes the labels they give."""

    def __init__(self, which: str) -> None:
        self._which = which
        self._last = NO_POD
        self._numbers: dict[int, int] = {}
        self._held: dict[int, Pod] = {}
        self._labels: dict[int, list[Label]] = {NO_POD: []}

    def keep(self, pods: Collection[Pod]) -> None:
        """Forget all others."""
        there = {id(pod) for pod in pods}
        self._held = {number: pod for number, pod in self._held.items() if id(pod) in there}
        self._numbers = {id(pod): number for number, pod in self._held.items()}
        self._labels = {NO_POD: []}

    def number(self, pod: Pod | None) -> int:
        """The number of a pod."""
        if pod is None:
            return NO_POD
        number = self._numbers.get(id(pod))
        if number is None:
            self._last += 1
            number = self._numbers[id(pod)] = self._last
            self._held[number] = pod
        return number

    def labels(self, number: int) -> list[Label]:
        """What a series of this pod gets."""
        known = self._labels.get(number)
        if known is None:
            pod = self._held[number]
            workload = workload_of(pod, self._which)
            known = _pod_labels(pod)
            if workload is not None:
                known += _workload_labels(workload.name, workload.uid)
            self._labels[number] = known
        return known

    def pieces(self, number: int) -> tuple[bytes, bytes]:
        """The same as the fields of a TimeSeries: the pod's labels and the workload's."""
        labels = self.labels(number)
        pod = join([label for label in labels if label[0] in OF_PODS])
        return pod, join([label for label in labels if label[0] not in OF_PODS])

    def copies(self, number: int) -> list[list[Label]]:
        """What each copy of a series of this pod gets: one for each workload."""
        if number == NO_POD:
            return []
        pod = self._held[number]
        return [[*_pod_labels(pod), *_workload_labels(one.name, one.uid)] for one in pod.workloads]


def replaced(labels: list[Label], ours: list[Label]) -> list[Label]:
    """Labels with ours instead of those of the same names, sorted by name."""
    names = {label[0] for label in ours}
    # Names are unique, so that nothing but names is compared.
    return sorted([*(label for label in labels if label[0] not in names), *ours])


def join(labels: list[Label]) -> bytes:
    """Labels as the fields of a TimeSeries."""
    return b"".join([label[2] for label in labels])


def _pod_labels(pod: Pod) -> list[Label]:
    ours = [make_label("pod_name", pod.name)]
    return [*ours, make_label("pod_uid", pod.uid)] if pod.uid else ours


def _workload_labels(name: str, uid: str) -> list[Label]:
    return [make_label("workload_name", name or uid), make_label("workload_uid", uid)]
