"""Label sets on the wire: field 1 of a TimeSeries, each a message of a name (1) and a value (2).

A label is a plain tuple, because plain tuples of texts cost the garbage collector nothing, and there are many.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import lt
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from lens_core.base.protobuf import DELIMITED, WireError, delimited, fields, splitter

# Name, value, the bytes of its field (tag and length included), and whether it must be looked at: its name tells
# something, or it has no value.
Label: TypeAlias = tuple[str, str, bytes, bool]

LABEL_TAG = 0x0A
METRIC_NAME = "__name__"
_MEMO_LABELS = 50_000
_Labels: Any = splitter("Labels", {"labels": 1})


class RefusedSeries(Exception):
    """A series that no store takes; `reason` is one of a few words, the text is for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def make_label(name: str, value: str) -> Label:
    """A label of our own."""
    return name, value, delimited(1, delimited(1, name.encode()) + delimited(2, value.encode())), False


class LabelReader:
    """Reads blocks of label fields; remembers single labels, because most occur in many series.

    `marked` are the names of the labels that somebody will want to look at.
    """

    def __init__(self, marked: Collection[str] = ()) -> None:
        self._marked = frozenset(marked)
        self._memo: dict[bytes, Label] = {}

    def read(self, block: bytes) -> list[Label]:
        """The labels of a block in its order. Raises WireError unless it is nothing but whole label fields."""
        try:
            inners: list[bytes] = list(_Labels.FromString(block).labels)
        except DecodeError:
            raise WireError("something else between the labels") from None
        # With two bytes for tag and length each, nothing is left over: there is nothing else in the block.
        if sum(map(len, inners)) + 2 * len(inners) != len(block):
            return self._read_slowly(block)
        known = self._memo.get
        found = [known(inner) for inner in inners]
        if None in found:
            return [self._learn(inner) if label is None else label for inner, label in zip(inners, found, strict=True)]
        return found  # type: ignore[return-value]

    def _read_slowly(self, block: bytes) -> list[Label]:
        found = []
        for field in fields(block):
            if field.number != 1 or field.kind != DELIMITED:
                raise WireError("something else between the labels")
            label = self._memo.get(field.value) or self._learn(field.value)
            if label[2] != block[field.start : field.end]:
                raise WireError("a label whose length is written in an unusual way")
            found.append(label)
        return found

    def _learn(self, inner: bytes) -> Label:
        name, value = _name_and_value(inner)
        try:
            text = name.decode()
            label = (text, value.decode(), delimited(1, inner), text in self._marked or not value)
        except UnicodeDecodeError:
            raise RefusedSeries("invalid_utf8", "a label is not UTF-8") from None
        if len(self._memo) >= _MEMO_LABELS:
            self._memo.clear()
        self._memo[inner] = label
        return label


def _name_and_value(message: bytes) -> tuple[bytes, bytes]:
    """Both texts of a label; raises WireError."""
    size = len(message)
    if 4 <= size < 0x80 and message[0] == 0x0A:
        # The usual shape: a short name, then a short value, nothing else.
        middle = 2 + message[1]
        if middle + 2 <= size and message[middle] == 0x12 and middle + 2 + message[middle + 1] == size:
            return message[2:middle], message[middle + 2 :]
    name = value = b""
    for field in fields(message):
        if field.number in (1, 2) and field.kind != DELIMITED:
            raise WireError("a label's name or value has the wrong type")
        if field.number == 1:
            name = field.value
        elif field.number == 2:
            value = field.value
    return name, value


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
