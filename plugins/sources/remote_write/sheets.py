"""New series of one kind, stacked: what nearly all of them share is compared and written once for all.

Rows of one width under each other have columns: one byte of each row, which a slice with a step reads or writes at
once. Series of a kind differ in few columns (digits, mostly), and so do the labels of their pods; which, is learned.
That all other bytes are the first row's is one comparison; what goes on is the first row, repeated, with the columns
that differ copied into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import compress
from operator import xor
from typing import NamedTuple

from .attaching import Attached
from .entry import head_of
from .tails import STAMP_SIZE, Tails
from .templates import Template

# With fewer rows, or with more columns for a row than that, every row by itself is quicker.
_FEW_ROWS = 12
_COLUMNS_PER_ROW = 3
# One row in sixteen is asked whether it was seen before: those whose varying bytes, taken together, end in four zeros.
_ASKED = bytes(byte & 15 == 0 for byte in range(256))
_from_bytes = int.from_bytes


class Laid(NamedTuple):
    """Where in the pieces of a request the rows of a run belong, and how many they are."""

    place: int
    rows: int


class Stack(NamedTuple):
    """The rows as they go on, each of `size` bytes; `odd` are not of the kind after all, `asked` a few to look up."""

    goes: memoryview
    size: int
    odd: Sequence[int]
    asked: Sequence[int]


class _Columns(NamedTuple):
    """The columns in which rows differ: where they are in rows that come, and, with all their bytes, in both.

    `ascii` are those whose bytes must be ASCII, `labels` is how many of them belong to labels, which are the first;
    `stamps` is whether some belong to timestamps.
    """

    places: Sequence[int] = ()
    come: Sequence[slice] = ()
    go: Sequence[slice] = ()
    ascii: Sequence[bool] = ()
    labels: int = 0
    stamps: bool = False


class Sheet:
    """Collects series that fit a template, and whose pods give them labels of the same lengths.

    Whether they fit is looked at here, because together that costs little.
    """

    def __init__(self, template: Template, sizes: tuple[int, int]) -> None:
        self.template = template
        self.attaches = sizes != (0, 0)
        self.rows: list[bytes] = []
        self.runs: list[Laid] = []
        self._proven = True
        self._ours: list[bytes] = []
        self._sizes = sizes
        self._width = template.size + sum(sizes)
        self._head = head_of(self._width)
        self._size = len(self._head) + self._width
        self._columns = _Columns()

    def add(self, rows: Sequence[bytes], attached: Sequence[Attached], place: int, *, proven: bool) -> None:
        """Add a run of series, and what their pods give them; `proven` if all of them are known to fit."""
        self.rows += rows
        self._ours += [one.both for one in attached]
        self.runs.append(Laid(place, len(rows)))
        self._proven = self._proven and proven

    def clear(self) -> None:
        """Let go of the rows, not of what was learned of them."""
        self.rows, self._ours, self.runs, self._proven = [], [], [], True

    def stack(self, tails: Tails) -> Stack:
        """All rows as they go on."""
        count = len(self.rows)
        few = count < _FEW_ROWS or len(self._columns.places) > count * _COLUMNS_PER_ROW
        # What the first row shows is taken for granted below.
        if few or not self._fits(self.rows[0], tails):
            return self._each(tails)
        pieces = [b""] * (2 * count)
        pieces[::2], pieces[1::2] = self.rows, self._ours
        came = b"".join(pieces)
        odd: Sequence[int] = ()
        values = self._alike(came, tails)
        if values is None:
            odd = self._learn(came, tails)
            values = [came[column] for column in self._columns.come]
        return self._copy(values, odd)

    def _each(self, tails: Tails) -> Stack:
        """The same, each row by itself."""
        odd: Sequence[int] = ()
        if not self._proven:
            odd = [place for place, row in enumerate(self.rows) if not self._fits(row, tails)]
        goes = b"".join(map(self._arranged, self.rows, self._ours))
        labels = self.template.labels
        asked = [place for place, row in enumerate(self.rows) if not (place and hash(row[:labels]) & 15)]
        return Stack(memoryview(goes), self._size, odd, asked)

    def _fits(self, row: bytes, tails: Tails) -> bool:
        return self.template.fits(row) and tails.know((row,))

    def _alike(self, came: bytes, tails: Tails) -> list[bytes] | None:
        """The columns that differ; None if others do, too, or not every row is of the kind."""
        count, columns = len(self.rows), self._columns
        values = [came[column] for column in columns.come]
        others, blank = bytearray(came), bytes(count)
        for column in columns.come:
            others[column] = blank
        if others != others[: self._width] * count or not all(map(bytes.isascii, compress(values, columns.ascii))):
            return None
        return values if not columns.stamps or tails.know(self.rows) else None

    def _learn(self, came: bytes, tails: Tails) -> list[int]:
        """Look at each row: at its columns if it is of the kind; the places of the others."""
        width = self._width
        first = _from_bytes(came[:width], "little")
        differ, odd = 0, []
        for place, row in enumerate(self.rows):
            if self._fits(row, tails):
                differ |= _from_bytes(came[place * width : (place + 1) * width], "little") ^ first
            else:
                odd.append(place)
        found = {column for column, byte in enumerate(differ.to_bytes(width, "little")) if byte}
        self._columns = self._set_out(sorted(found.union(self._columns.places)))
        return odd

    def _set_out(self, places: list[int]) -> _Columns:
        """All about the columns at these places."""
        template = self.template
        return _Columns(
            places=places,
            come=[slice(place, None, self._width) for place in places],
            go=[slice(self._goes_to(place), None, self._size) for place in places],
            ascii=[template.must_be_ascii(place) for place in places],
            labels=sum(place < template.labels for place in places),
            stamps=any(template.size - STAMP_SIZE < place < template.size for place in places),
        )

    def _copy(self, values: Sequence[bytes], odd: Sequence[int]) -> Stack:
        """The rows as they go on, from the first and the columns in which others differ."""
        count, columns = len(self.rows), self._columns
        goes = bytearray(self._arranged(self.rows[0], self._ours[0]) * count)
        for column, column_values in zip(columns.go, values, strict=True):
            goes[column] = column_values
        together = reduce(xor, [_from_bytes(one, "little") for one in values[: columns.labels]], 0)
        asked = [0, *_places(together.to_bytes(count, "little").translate(_ASKED))]
        return Stack(memoryview(goes), self._size, odd, asked)

    def _arranged(self, row: bytes, ours: bytes) -> bytes:
        """A row as it goes on, with what its pod gives where it belongs."""
        before, middle, after, _ = self.template.cut(row)
        pod = self._sizes[0]
        return b"".join((self._head, before, ours[:pod], middle, ours[pod:], after))

    def _goes_to(self, column: int) -> int:
        """Where in a row that goes on a column belongs; what the pod gives came behind."""
        template, (pod, workload) = self.template, self._sizes
        if column < template.size:
            shift = (column >= template.pod) * pod + (column >= template.workload) * workload
        else:
            shift = (template.pod if column < template.size + pod else template.workload) - template.size
        return len(self._head) + column + shift


def _places(marks: bytes) -> Iterator[int]:
    """Where marks are, the first row left out."""
    place = marks.find(1, 1)
    while place > 0:
        yield place
        place = marks.find(1, place + 1)
