"""Points of histograms and summaries: the samples of a classic one, the message of a native one; all checked."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from lens_core.plugin_api.protobuf import delimited, numeric, varint

from ..remote_write.histograms import STALE_NAN
from .label_sets import Refused
from .values import float_text

LEAST_SCALE, GREATEST_SCALE = -4, 8
ZERO_THRESHOLD = 1e-128
# Spans have 32-bit offsets; a bucket that far out is no number of a float anyway.
_FARTHEST = 2**30
_LARGEST_COUNT = 2**63 - 1
_POSITIVE, _NEGATIVE = (11, 12), (8, 9)


class Part(NamedTuple):
    """One series of a point: what comes after the metric's name, the label that tells it, its value."""

    suffix: str
    label: Mapping[str, str]
    value: float


def classic_samples(point: Any) -> list[Part]:
    """The buckets, sum and count of a histogram with explicit bounds. Raises Refused."""
    bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
    if (bounds or counts) and len(counts) != len(bounds) + 1:
        raise Refused("bad_histogram", f"a histogram has {len(counts)} buckets between {len(bounds)} bounds")
    if any(not math.isfinite(bound) for bound in bounds) or any(not one < two for one, two in pairwise(bounds)):
        raise Refused("bad_histogram", "the bounds of a histogram do not rise")
    if counts and sum(counts) != point.count:
        raise Refused("bad_histogram", f"{sum(counts)} observations in buckets, but a count of {point.count}")
    below = list(accumulate(counts))
    parts = [
        Part("_bucket", {"le": float_text(bound)}, float(held)) for bound, held in zip(bounds, below, strict=False)
    ]
    parts.append(Part("_bucket", {"le": "+Inf"}, float(point.count)))
    if point.HasField("sum"):
        parts.append(Part("_sum", {}, point.sum))
    return [*parts, Part("_count", {}, float(point.count))]


def summary_samples(point: Any) -> list[Part]:
    """The quantiles, sum and count of a summary. Raises Refused."""
    quantiles = {one.quantile: one.value for one in point.quantile_values}
    if any(not 0.0 <= quantile <= 1.0 for quantile in quantiles):
        raise Refused("bad_histogram", "a quantile of a summary is not between 0 and 1")
    parts = [Part("", {"quantile": float_text(quantile)}, quantiles[quantile]) for quantile in sorted(quantiles)]
    return [*parts, Part("_sum", {}, point.sum), Part("_count", {}, float(point.count))]


def encode_native(point: Any, milliseconds: int, *, is_stale: bool) -> bytes:
    """The message Histogram of remote write for an exponential histogram. Raises Refused."""
    if is_stale:
        return b"\x19" + STALE_NAN + numeric(15, milliseconds)
    positive, negative = list(point.positive.bucket_counts), list(point.negative.bucket_counts)
    counted = sum(positive) + sum(negative) + point.zero_count
    if counted != point.count or counted > _LARGEST_COUNT:
        raise Refused("bad_histogram", f"{counted} observations in buckets, but a count of {point.count}")
    if point.scale < LEAST_SCALE:
        raise Refused("bad_histogram", f"a histogram of scale {point.scale} is coarser than Prometheus can hold")
    if not 0.0 <= point.zero_threshold < math.inf:
        raise Refused("bad_histogram", "the zero threshold of a histogram is no positive number")
    shift = max(0, point.scale - GREATEST_SCALE)
    total = point.sum if point.HasField("sum") else 0.0
    return b"".join(
        (
            numeric(1, point.count),
            b"\x19" + struct.pack("<d", total),
            numeric(4, _zigzag(point.scale - shift)),
            b"\x29" + struct.pack("<d", point.zero_threshold or ZERO_THRESHOLD),
            numeric(6, point.zero_count),
            *_encode_buckets(point.negative.offset, negative, shift, *_NEGATIVE),
            *_encode_buckets(point.positive.offset, positive, shift, *_POSITIVE),
            numeric(15, milliseconds),
        )
    )


def _encode_buckets(offset: int, counts: Sequence[int], shift: int, spans: int, deltas: int) -> Iterator[bytes]:
    """The one span of a side and the differences of its counts; empty buckets at both ends are left out."""
    merged: dict[int, int] = {}
    for index, held in enumerate(counts, offset):
        if held:
            # Buckets of a finer scale are halves, quarters … of those of a coarser one; upper bounds are inclusive.
            place = (index >> shift) + 1
            merged[place] = merged.get(place, 0) + held
    if not merged:
        return
    first, last = min(merged), max(merged)
    if abs(first) > _FARTHEST or abs(last) > _FARTHEST:
        raise Refused("bad_histogram", f"a bucket of a histogram is number {offset}, beyond what a number can be")
    yield delimited(spans, numeric(1, _zigzag(first)) + numeric(2, last - first + 1))
    filled = [merged.get(place, 0) for place in range(first, last + 1)]
    yield delimited(deltas, b"".join(varint(_zigzag(two - one)) for one, two in pairwise((0, *filled))))


def _zigzag(number: int) -> int:
    """The form of signed numbers (sint32, sint64)."""
    return (number << 1) ^ (number >> 63)
