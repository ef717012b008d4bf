"""The labels that a pod gives to its series, and where among the others they stand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from operator import lt
from typing import NamedTuple

import msgspec

from lens_core import Pod
from lens_core.directory.index import workload_of

from .finding import Keys
from .labels import METRIC_NAME, Label, make_label

OF_PODS = ("pod_name", "pod_uid")
OURS = (*OF_PODS, "workload_name", "workload_uid")
NO_POD = 0
_REMEMBERED_SHAPES = 10_000


class Shape(NamedTuple):
    """What holds for all label sets of the same names: where the metric's name is, and where each of ours belongs."""

    name: int
    places: tuple[int, ...]


class Attached(msgspec.Struct, frozen=True, gc=False):
    """What the series of a pod get, in two pieces of these sizes, and both together; the pod was found by `keys`."""

    pod: bytes
    workload: bytes
    both: bytes
    sizes: tuple[int, int]
    number: int
    keys: Keys


class Shapes:
    """Shapes by the names of labels, in their order; senders have few of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Shape | None] = {}

    def of(self, names: tuple[str, ...]) -> Shape | None:
        """The shape; None if the names are not sorted or not unique, if there is no metric name, or one of ours."""
        try:
            return self._known[names]
        except KeyError:
            if len(self._known) >= _REMEMBERED_SHAPES:
                self._known.clear()
            shape = self._known[names] = _shape(names)
            return shape


def _shape(names: tuple[str, ...]) -> Shape | None:
    usual = METRIC_NAME in names and names[0] and all(map(lt, names, names[1:]))
    if not usual or not set(OURS).isdisjoint(names):
        return None
    return Shape(names.index(METRIC_NAME), tuple(bisect_left(names, ours) for ours in OURS))


class Pods:
    """Numbers pods (the same object keeps its number while it is in the directory) and makes the labels they give."""

    def __init__(self, which: str) -> None:
        self._which = which
        self._last = NO_POD
        self._numbers: dict[int, int] = {}
        self._held: dict[int, Pod] = {}
        self._labels: dict[int, list[Label]] = {NO_POD: []}
        self._pieces: dict[int, list[tuple[int, bytes]]] = {NO_POD: []}
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}

    def keep(self, pods: Collection[Pod]) -> None:
        """Forget all others."""
        there = {id(pod) for pod in pods}
        self._held = {number: pod for number, pod in self._held.items() if id(pod) in there}
        self._numbers = {id(pod): number for number, pod in self._held.items()}
        self._labels = {NO_POD: []}
        self._pieces = {NO_POD: []}

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

    def insert(self, number: int, pieces: list[bytes], shape: Shape) -> None:
        """Put what a series of this pod gets among the labels of a shape."""
        known = self._pieces.get(number)
        if known is None:
            # From behind, so that the places before stay right.
            known = self._pieces[number] = [(OURS.index(label[0]), label[2]) for label in reversed(self.labels(number))]
        for which, piece in known:
            pieces.insert(shape.places[which], piece)

    def attached(self, number: int, keys: Keys) -> Attached:
        """The same in pieces, for series whose template says where they belong."""
        labels = self.labels(number)
        pod = join([label for label in labels if label[0] in OF_PODS])
        workload = join([label for label in labels if label[0] not in OF_PODS])
        sizes = (len(pod), len(workload))
        # The same object for the same sizes, so that comparing is quick.
        return Attached(pod, workload, pod + workload, self._sizes.setdefault(sizes, sizes), number, keys)

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
