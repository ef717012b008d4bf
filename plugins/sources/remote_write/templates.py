"""Series that differ from known ones in nothing but values: told by comparing bytes, not by reading.

Under churn nearly every new label set has the labels of an old one, and each value is as long as the old one's. Such a
series equals the old one everywhere but in its values; so what names the pod, and where other labels belong, are cuts
at known places. The comparison is one of two large numbers under a mask: nothing else in Python compares every byte
but some as quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TypeAlias

import msgspec

from .attaching import Shape
from .labels import METRIC_NAME, Label, make_label
from .samples import VALUE_TAIL, ZERO_TAIL, Tail
from .seen import Seen

# The part before the pod's labels, from there to the workload's, the rest, and the labels that may tell the pod.
Cut: TypeAlias = Callable[[bytes], tuple[bytes, bytes, bytes, bytes]]

_PRINTABLE = bytes(range(0x20, 0x7F))
_REMEMBERED = 2048
# Names of the same lengths look alike at first; so many are kept side by side.
_ALIKE = 16
_from_bytes = int.from_bytes


class Template(msgspec.Struct, gc=False):
    """A series with `size` bytes which are `fixed` under `mask` has labels as `cut` expects, and a single sample.

    `labels` is where its labels end, `pod` and `workload` where what they give belongs, `told` are the labels that may
    tell the pod, `name` is the metric's name. Values of labels are ASCII, so that they need no look for text that is
    not UTF-8, and the sample's is not negative. Series that are the same under `alike` have the metric's name and the
    labels that tell the pod in common, too.
    """

    size: int
    mask: int
    fixed: int
    labels: int
    cut: Cut
    name: slice
    pod: int
    workload: int
    told: slice
    alike: int

    def fits(self, series: bytes) -> bool:
        """Whether a series is of this kind."""
        return self.size == len(series) and _from_bytes(series, "little") & self.mask == self.fixed

    def key(self, series: bytes) -> int:
        """What a series of this kind has in common with those that are alike."""
        return _from_bytes(series, "little") & self.alike


class Templates:
    """Finds templates by skeletons: what labels have beside printable characters, which is mostly lengths."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Template, ...]] = {}
        self._seen = Seen(_REMEMBERED)

    def find(self, block: bytes, tail: bytes) -> Template | None:
        """The template of a series by its labels and its end."""
        series = block + tail
        for template in self._known.get(block.translate(None, _PRINTABLE), ()):
            if template.fits(series):
                return template
        return None

    def learn(self, block: bytes, labels: Sequence[Label], shape: Shape) -> None:
        """Make templates of a label set of a usual shape; of the second of its kind, because some have no kind."""
        skeleton = block.translate(None, _PRINTABLE)
        if not self._seen.again(skeleton) or not _fit(labels, shape):
            return
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
            self._seen = Seen(_REMEMBERED)
        alike = self._known.get(skeleton, ())
        if len(alike) < _ALIKE:
            made = (_template(block, labels, shape, tail) for tail in (VALUE_TAIL, ZERO_TAIL))
            self._known[skeleton] = (*alike, *made)


def _fit(labels: Sequence[Label], shape: Shape) -> bool:
    """Whether values and encodings are usual, and no other label belongs between two of ours."""
    name, uid, workload_name, workload_uid = shape.places
    if name != uid or workload_name != workload_uid:
        return False
    return all(value.isascii() and field == make_label(name, value)[2] for name, value, field, _ in labels)


def _template(block: bytes, labels: Sequence[Label], shape: Shape, tail: Tail) -> Template:
    mask, alike = bytearray(), bytearray()
    ends = [0]
    for name, value, field, tells in labels:
        # Of a value the highest bits count: they are 0 in ASCII.
        mask += b"\xff" * (len(field) - len(value)) + b"\x80" * len(value)
        alike += b"\xff" * len(field) if tells or name == METRIC_NAME else mask[len(alike) :]
        ends.append(ends[-1] + len(field))
    number = _from_bytes(mask + tail.mask, "little")
    pod, workload = ends[shape.places[0]], ends[shape.places[2]]
    telling = [place for place, label in enumerate(labels) if label[3]]
    name_end = ends[shape.name + 1]
    told = slice(ends[telling[0]], ends[telling[-1] + 1]) if telling else slice(0, 0)
    return Template(
        size=len(block) + len(tail.mask),
        mask=number,
        fixed=_from_bytes(block + tail.example, "little") & number,
        labels=len(block),
        cut=itemgetter(slice(0, pod), slice(pod, workload), slice(workload, None), told),
        name=slice(name_end - len(labels[shape.name][1]), name_end),
        pod=pod,
        workload=workload,
        told=told,
        alike=_from_bytes(alike + tail.mask, "little"),
    )
