"""Label sets on the wire: field 1 of a TimeSeries, each a message of a name (1) and a value (2).

A label is a plain tuple, because plain tuples of texts cost the garbage collector nothing, and there are many.
"""

from __future__ import annotations

from functools import lru_cache
from operator import lt
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from lens_core.plugin_api.protobuf import DELIMITED, WireError, delimited, fields, splitter

# Name, value, and the bytes of its field (tag and length included).
Label: TypeAlias = tuple[str, str, bytes]

LABEL_TAG = 0x0A
METRIC_NAME = "__name__"
_MEMO_LABELS = 50_000
_MEMO_LABEL_BYTES = 512
_Labels: Any = splitter("Labels", {"labels": 1})


class RefusedSeries(Exception):
    """A series that no store takes; `reason` is one of a few words, the text is for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def make_label(name: str, value: str) -> Label:
    """A label of our own."""
    return name, value, delimited(1, delimited(1, name.encode()) + delimited(2, value.encode()))


def read_labels(block: bytes) -> list[Label]:
    """The labels of a block of nothing but label fields, in its order. Raises WireError or RefusedSeries."""
    try:
        inners: list[bytes] = list(_Labels.FromString(block).labels)
    except DecodeError:
        raise WireError("something else between the labels") from None
    return [_known_label(inner) if len(inner) <= _MEMO_LABEL_BYTES else _parse_label(inner) for inner in inners]


def _parse_label(inner: bytes) -> Label:
    name = value = b""
    for field in fields(inner):
        if field.number in (1, 2) and field.kind != DELIMITED:
            raise WireError("a label's name or value has the wrong type")
        if field.number == 1:
            name = field.value
        elif field.number == 2:
            value = field.value
    try:
        return name.decode(), value.decode(), delimited(1, inner)
    except UnicodeDecodeError:
        raise RefusedSeries("invalid_utf8", "a label is not UTF-8") from None


# Most labels occur in many series.
_known_label = lru_cache(_MEMO_LABELS)(_parse_label)


def checked(labels: list[Label]) -> list[Label]:
    """The labels sorted by name, without those that have no value (they mean the same as none).

    Raises RefusedSeries for what makes stores fail: no metric name, a label without a name, a name that comes twice.
    """
    names = [label[0] for label in labels]
    if (
        METRIC_NAME in names
        and names[0]
        and all(map(lt, names, names[1:]))
        and "" not in [label[1] for label in labels]
    ):
        return labels
    if "" in names:
        raise RefusedSeries("empty_label_name", "a label has no name")
    kept = sorted((label for label in labels if label[1]), key=lambda label: label[0])
    names = [label[0] for label in kept]
    if not all(map(lt, names, names[1:])):
        raise RefusedSeries("duplicate_label", "a label comes twice")
    if METRIC_NAME not in names:
        raise RefusedSeries("no_metric_name", "a series has no metric name")
    return kept
