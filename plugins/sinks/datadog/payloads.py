"""Series to request bodies within the intake's limits: compressed bytes, decompressed bytes, points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from lens_core.plugin_api.encoding import compress

from .series import Series
from .settings import DatadogSettings

ENCODINGS = {"gzip": "gzip", "zstd": "zstd1", "none": ""}
_OPEN, _CLOSE = b'{"series":[', b"]}"
_encoder = msgspec.json.Encoder()


class Payload(msgspec.Struct, frozen=True):
    """A compressed body, and which of the series are in it (from `first` on, `count` of them)."""

    body: bytes
    first: int
    count: int


class TooLarge(ValueError):
    """One series alone is over the limits; `args[0]` is its index."""


def pack(series: Sequence[Series], settings: DatadogSettings) -> Iterator[Payload]:
    """Bodies that hold all series in their order. Raises TooLarge."""
    encoded = [_encoder.encode(one) for one in series]
    first = size = points = 0
    for index, text in enumerate(encoded):
        count = len(series[index].points)
        full = size + len(text) + 1 > settings.max_body_bytes - len(_OPEN + _CLOSE)
        if index > first and (full or points + count > settings.max_points):
            yield from _fit(encoded, first, index, settings)
            first, size, points = index, 0, 0
        size += len(text) + 1
        points += count
    if first < len(encoded):
        yield from _fit(encoded, first, len(encoded), settings)


def _fit(encoded: Sequence[bytes], first: int, end: int, settings: DatadogSettings) -> Iterator[Payload]:
    """One body, or halves of it for as long as it is too large when compressed."""
    text = _OPEN + b",".join(encoded[first:end]) + _CLOSE
    body = compress(text, settings.compression)
    if len(body) <= settings.max_payload_bytes and len(text) <= settings.max_body_bytes:
        yield Payload(body, first, end - first)
    elif end - first == 1:
        raise TooLarge(first)
    else:
        middle = (first + end) // 2
        yield from _fit(encoded, first, middle, settings)
        yield from _fit(encoded, middle, end, settings)
