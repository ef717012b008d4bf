"""Label sets on the wire: field 1 of a TimeSeries, each a message of a name (1) and a value (2)."""

from __future__ import annotations

from operator import lt
from typing import NamedTuple

from lens_core.protobuf import DELIMITED, WireError, delimited, fields, read_varint

LABEL_TAG = 0x0A
_MEMO_LABELS = 50_000


class Label(NamedTuple):
    """A label, and `piece`: the bytes of its field, tag and length included."""

    name: str
    value: str
    piece: bytes


class RefusedSeries(Exception):
    """A series that no store takes; `reason` is one of a few words, the text is for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def make_label(name: str, value: str) -> Label:
    """A label of our own."""
    inner = delimited(1, name.encode()) + delimited(2, value.encode())
    return Label(name, value, delimited(1, inner))


class LabelReader:
    """Reads blocks of label fields; remembers single labels, because most occur in many series."""

    def __init__(self) -> None:
        self._memo: dict[bytes, Label] = {}

    def read(self, block: bytes) -> list[Label]:
        """The labels of a block in its order. Raises WireError unless it is nothing but whole label fields."""
        found = []
        place = 0
        size = len(block)
        known = self._memo.get
        while place < size:
            if block[place] != LABEL_TAG:
                raise WireError("something else between the labels")
            start = place + 2
            length = block[place + 1] if start <= size else 0x80
            if length > 0x7F:
                length, start = read_varint(block, place + 1)
            end = start + length
            if end > size:
                raise WireError("the message ends inside a label")
            piece = block[place:end]
            label = known(piece)
            found.append(self._learn(piece, block[start:end]) if label is None else label)
            place = end
        return found

    def _learn(self, piece: bytes, inner: bytes) -> Label:
        name, value = _name_and_value(inner)
        try:
            label = Label(name.decode(), value.decode(), piece)
        except UnicodeDecodeError:
            raise RefusedSeries("invalid_utf8", "a label is not UTF-8") from None
        if len(self._memo) >= _MEMO_LABELS:
            self._memo.clear()
        self._memo[piece] = label
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
    in_order = [label[0] for label in labels]
    is_sorted = "__name__" in in_order and in_order[0] and all(map(lt, in_order, in_order[1:]))
    if is_sorted and all(label[1] for label in labels):
        return labels
    kept = sorted((label for label in labels if label.value), key=lambda label: label.name)
    if any(not label.name for label in labels):
        raise RefusedSeries("empty_label_name", "a label has no name")
    names = {label.name for label in kept}
    if len(names) < len(kept):
        raise RefusedSeries("duplicate_label", "a label comes twice")
    if "__name__" not in names:
        raise RefusedSeries("no_metric_name", "a series has no metric name")
    return kept
