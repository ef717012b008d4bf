"""Series laid under each other: one row each in an array of bytes, so that one operation looks at all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .samples import VALUE_SIZE

Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
Numbers: TypeAlias = npt.NDArray[np.int64]
Marks: TypeAlias = npt.NDArray[np.bool_]

# Of longer series, only so much is laid out.
WIDEST = 1024
# Rows are compared in words of so many bytes.
WORD = 8
# By a number of bytes: ones so far, then zeros.
_SO_FAR: Words = (np.tri(WIDEST + 1, WIDEST, -1, dtype=np.uint8) * np.uint8(0xFF)).view(np.uint64)


class Laid:
    """`sizes` of the series; `cells` are their bytes, followed by whatever; `labels` without the end, by zeros."""

    def __init__(self, series: Sequence[bytes]) -> None:
        self.sizes: Numbers = np.fromiter(map(len, series), np.int64, len(series))
        self._starts = self.sizes.cumsum() - self.sizes
        self._bytes: Bytes = np.frombuffer(b"".join((*series, bytes(WIDEST))), np.uint8)
        self.cells = self._cut(self._starts, _whole_words(min(int(self.sizes.max()), WIDEST)))
        # Nearly all end in a value; of the others, a few bytes less of the labels are left.
        self.labels = _ended(self.cells, self.sizes - VALUE_SIZE)

    def rows(self, places: Numbers, width: int) -> Bytes:
        """The series at some places, all of the same width."""
        return windows(self._bytes, width)[self._starts[places]]

    def parts(self, places: Numbers, starts: Numbers, sizes: Numbers) -> list[bytes]:
        """Of the series at some places so many bytes from a start on, followed by zeros."""
        cells = _ended(self._cut(self._starts[places] + starts, _whole_words(int(sizes.max()))), sizes)
        parts: list[bytes] = cells.view(f"V{cells.shape[1] * WORD}").ravel().tolist()
        return parts

    def _cut(self, starts: Numbers, width: int) -> Words:
        return windows(self._bytes, width)[starts].view(np.uint64)


def windows(cells: Bytes, width: int) -> Bytes:
    """So many bytes from each place on; nothing is copied."""
    return np.ndarray((len(cells) - width + 1, width), np.uint8, cells, 0, (1, 1))


def _whole_words(width: int) -> int:
    return max(WORD, -(-width // WORD) * WORD)


def _ended(cells: Words, sizes: Numbers) -> Words:
    """Rows that have zeros behind so many bytes."""
    ended: Words = _SO_FAR[sizes.clip(0, WIDEST), : cells.shape[1]]
    ended &= cells
    return ended
