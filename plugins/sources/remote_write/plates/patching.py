"""Values of labels that differ from those of a plate, and where they belong in what goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..attaching import Attached
from ..laid import Bytes, Numbers
from ..templates import Template
from .runs import head_sizes

Small = npt.NDArray[np.int32]
Integer = TypeVar("Integer", np.int32, np.int64)


class Gap(NamedTuple):
    """What is taken out of a row of things, between two places."""

    start: int
    end: int

    def taken_out(self, cells: Bytes) -> Bytes:
        """The bytes around it."""
        return np.concatenate((cells[: self.start], cells[self.end :]))

    def closed(self, places: npt.NDArray[Integer]) -> npt.NDArray[Integer]:
        """Places in what is left, none of which lay within."""
        left: npt.NDArray[Integer] = places - (places >= self.end) * places.dtype.type(self.end - self.start)
        return left


class Structure(NamedTuple):
    """What a plate's series are like: where each begins behind its head, in both; what was attached; its kind.

    By kind: which bits of which byte must be `alike`, and where the labels of the pod and of the workload belong.
    """

    came: Small
    goes: Small
    pod_sizes: Small
    workload_sizes: Small
    kinds: Small
    alike: Bytes
    pods: Numbers
    workloads: Numbers

    def moved(self, places: Numbers, differences: Bytes) -> Numbers:
        """Where bytes of labels go that may differ, up to the first that may not."""
        series = self.came.searchsorted(places, "right") - 1
        if series[0] < 0:
            # Before the first one is its head.
            return np.zeros(0, np.int64)
        kinds, offsets = self.kinds[series], places - self.came[series]
        wrong = differences & self.alike[kinds, offsets]
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            series, kinds, offsets = series[:first], kinds[:first], offsets[:first]
        goes: Numbers = self.goes[series] + offsets
        goes += (offsets >= self.pods[kinds]) * self.pod_sizes[series]
        goes += (offsets >= self.workloads[kinds]) * self.workload_sizes[series]
        return goes

    def alike_in(self, number: int, new: bytes, old: bytes) -> bool:
        """Whether what two series begin with, their heads left out, is alike."""
        alike = self.alike[self.kinds[number], : len(old)].tobytes()
        difference = int.from_bytes(new, "little") ^ int.from_bytes(old, "little")
        return not difference & int.from_bytes(alike, "little")

    def without(self, number: int, came: Gap, goes: Gap) -> Structure:
        """The others, where a series was taken out."""
        return self._replace(
            came=came.closed(np.delete(self.came, number)),
            goes=goes.closed(np.delete(self.goes, number)),
            pod_sizes=np.delete(self.pod_sizes, number),
            workload_sizes=np.delete(self.workload_sizes, number),
            kinds=np.delete(self.kinds, number),
        )

    def followed_by(self, other: Structure, came: int, goes: int) -> Structure:
        """This, and what others are like that begin there."""
        width = max(self.alike.shape[1], other.alike.shape[1])
        return Structure(
            came=np.concatenate((self.came, other.came + np.int32(came))),
            goes=np.concatenate((self.goes, other.goes + np.int32(goes))),
            pod_sizes=np.concatenate((self.pod_sizes, other.pod_sizes)),
            workload_sizes=np.concatenate((self.workload_sizes, other.workload_sizes)),
            kinds=np.concatenate((self.kinds, other.kinds + np.int32(len(self.alike)))),
            alike=np.concatenate((_widened(self.alike, width), _widened(other.alike, width))),
            pods=np.concatenate((self.pods, other.pods)),
            workloads=np.concatenate((self.workloads, other.workloads)),
        )


def _widened(alike: Bytes, width: int) -> Bytes:
    # Behind a series, nothing may differ.
    return np.pad(alike, ((0, 0), (0, width - alike.shape[1])), constant_values=0xFF)


def structure_of(
    series: Sequence[bytes], templates: Sequence[Template], attached: Sequence[Attached], goes_ends: Numbers
) -> Structure:
    """What series with these templates are like, which got this and end there in what went on."""
    kinds = list({id(template): template for template in templates}.values())
    numbers = {id(template): number for number, template in enumerate(kinds)}
    # One more than any series has: behind it, nothing may differ, the next one's head is there.
    width = max(template.size for template in kinds) + 8
    alike = [template.alike.to_bytes(template.size, "little").ljust(width, b"\xff") for template in kinds]
    sizes = np.fromiter(map(len, series), np.int64, len(series))
    pods = np.array([len(one.pod) for one in attached], np.int32)
    workloads = np.array([len(one.workload) for one in attached], np.int32)
    return Structure(
        came=((sizes + head_sizes(sizes)).cumsum() - sizes).astype(np.int32),
        goes=(goes_ends - sizes - pods - workloads).astype(np.int32),
        pod_sizes=pods,
        workload_sizes=workloads,
        kinds=np.array([numbers[id(template)] for template in templates], np.int32),
        alike=np.frombuffer(b"".join(alike), np.uint8).reshape(len(kinds), width),
        pods=np.array([template.pod for template in kinds]),
        workloads=np.array([template.workload for template in kinds]),
    )
