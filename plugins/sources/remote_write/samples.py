"""The fields of a series after its labels: samples (2), exemplars (3), histograms (4); counted and checked."""

from __future__ import annotations

import struct
from typing import NamedTuple

from lens_core.plugin_api.protobuf import DELIMITED, FIXED64, VARINT, Field, WireError, fields

from .histograms import BadHistogram, check_histogram
from .labels import LABEL_TAG, RefusedSeries

_ZERO = b"\0" * 8


class Examined(NamedTuple):
    """The bytes that go on, and how many of each they hold; `dropped` samples are no longer among them."""

    rest: bytes
    samples: int
    histograms: int
    exemplars: int
    dropped: int


def split_labels(series: bytes) -> tuple[bytes, bytes]:
    """A TimeSeries as its label fields and everything else, each in its order. Raises WireError."""
    labels: list[bytes] = []
    others: list[bytes] = []
    for field in fields(series):
        if field.number == 1 and series[field.start] != LABEL_TAG:
            raise WireError("a label has the wrong type")
        (labels if field.number == 1 else others).append(series[field.start : field.end])
    return b"".join(labels), b"".join(others)


def examine(rest: bytes, *, drop_negative: bool) -> Examined:
    """Look through what follows the labels. Raises WireError, or RefusedSeries for a histogram that makes no sense."""
    kept: list[bytes] = []
    counts = {2: 0, 3: 0, 4: 0}
    dropped = 0
    for field in fields(rest):
        if field.number in counts:
            if field.kind != DELIMITED:
                raise WireError("a sample, an exemplar or a histogram has the wrong type")
            value = _check_sample(field)
            if drop_negative and value < 0:
                dropped += 1
                continue
            counts[field.number] += 1
        kept.append(rest[field.start : field.end])
    return Examined(b"".join(kept) if dropped else rest, counts[2], counts[4], counts[3], dropped)


def _check_sample(field: Field) -> float:
    """The value of a sample; 0 for the others. Raises WireError or RefusedSeries."""
    if field.number == 4:
        try:
            check_histogram(field.value)
        except BadHistogram as error:
            raise RefusedSeries("bad_histogram", f"a histogram has {error}") from None
        return 0.0
    raw = _ZERO
    numbers = {1: FIXED64, 2: VARINT} if field.number == 2 else {1: DELIMITED, 2: FIXED64, 3: VARINT}
    for part in fields(field.value):
        if part.kind != numbers.get(part.number, part.kind):
            raise WireError("a sample or an exemplar has a part of the wrong type")
        if field.number == 2 and part.number == 1:
            raw = part.value
    return float(struct.unpack("<d", raw)[0])
