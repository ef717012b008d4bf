"""Exemplars of OTLP → exemplars of remote write: single observations, with the trace in which they were made."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from lens_core.plugin_api.protobuf import delimited, numeric

from .naming import label_pairs
from .schema import metrics_class
from .values import BadValue, read_attributes, text_of

# Stores refuse exemplars whose labels are longer together (OpenMetrics).
MAX_LABEL_CHARACTERS = 128
# A store keeps few of each series, and those in the order of their times.
MAX_EXEMPLARS = 20
_MILLISECOND = 1_000_000


class Exemplar(NamedTuple):
    """An observation: its time in milliseconds, its value, and the message of remote write."""

    milliseconds: int
    value: float
    message: bytes


def read_exemplars(raws: Sequence[bytes]) -> list[Exemplar]:
    """The exemplars that these messages hold, by time; those that cannot be decoded or have no value are left out."""
    found = [made for raw in raws[:MAX_EXEMPLARS] if (made := _read_exemplar(raw)) is not None]
    return sorted(found, key=lambda exemplar: exemplar.milliseconds)


def _read_exemplar(raw: bytes) -> Exemplar | None:
    try:
        held = metrics_class("Exemplar").FromString(raw)
        attributes = read_attributes(held.filtered_attributes)
    except (DecodeError, BadValue):
        return None
    which = held.WhichOneof("value")
    if which is None or not held.time_unix_nano:
        return None
    value = float(getattr(held, which))
    milliseconds = held.time_unix_nano // _MILLISECOND
    labels = _labels_of(held, attributes)
    encoded = [delimited(1, delimited(1, name.encode()) + delimited(2, text.encode())) for name, text in labels]
    return Exemplar(
        milliseconds, value, b"".join([*encoded, b"\x11" + struct.pack("<d", value), numeric(3, milliseconds)])
    )


def _labels_of(held: Any, attributes: dict[str, Any]) -> list[tuple[str, str]]:
    """The trace, and the attributes if everything fits; sorted, as remote write has labels."""
    ids = {"trace_id": held.trace_id.hex(), "span_id": held.span_id.hex()}
    trace = {name: text for name, text in ids.items() if text}
    more = {**label_pairs((key, text_of(value)) for key, value in attributes.items()), **trace}
    fits = sum(len(name) + len(text) for name, text in more.items()) <= MAX_LABEL_CHARACTERS
    return sorted((more if fits else trace).items())


def encode_exemplars(exemplars: Iterable[Exemplar]) -> bytes:
    """The fields of a series that hold exemplars."""
    return b"".join(delimited(3, exemplar.message) for exemplar in exemplars)


def exemplars_by_bucket(exemplars: Iterable[Exemplar], bounds: Sequence[float]) -> dict[int, bytes]:
    """The encoded exemplars of each bucket of a classic histogram, by the place of its bound; NaN in the last."""

    def bucket_of(exemplar: Exemplar) -> int:
        if math.isnan(exemplar.value):
            return len(bounds)
        return next((place for place, bound in enumerate(bounds) if exemplar.value <= bound), len(bounds))

    placed = sorted(exemplars, key=bucket_of)  # stable: by time within a bucket
    return {place: encode_exemplars(held) for place, held in groupby(placed, key=bucket_of)}
