"""What goes on of series, those of one layout written together: piece by piece, each for all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .entry import head_of
from .laid import Bytes, Numbers, windows
from .templates import Template


class Sheet(NamedTuple):
    """Series at some places of a request, as they go on."""

    places: Numbers
    rows: Bytes


def sheet(places: Numbers, rows: Bytes, ours: Bytes, pod: int, template: Template) -> Sheet:
    """Rows of one layout, with what their pods give where it belongs: `pod` bytes of it first, the rest behind."""
    head = head_of(template.size + ours.shape[1])
    pieces = (
        np.frombuffer(head * len(rows), np.uint8).reshape(len(rows), len(head)),
        rows[:, : template.pod],
        ours[:, :pod],
        rows[:, template.pod : template.workload],
        ours[:, pod:],
        rows[:, template.workload :],
    )
    return Sheet(places, np.concatenate(pieces, axis=1))


def runs(numbers: Numbers) -> Iterator[tuple[int, int]]:
    """Start and end of each run of the same number."""
    ends = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    return pairwise(ends)


def in_order(count: int, sheets: Sequence[Sheet], others: Mapping[int, bytes]) -> bytes | memoryview:
    """The rows of sheets and what goes on of others, by their places in the request."""
    if not sheets:
        return b"".join(others.values())
    sizes = np.zeros(count, np.int64)
    sizes[[*others]] = [*map(len, others.values())]
    for places, rows in sheets:
        sizes[places] = rows.shape[1]
    starts = sizes.cumsum() - sizes
    cells = np.empty(int(sizes.sum()), np.uint8)
    for places, rows in sheets:
        windows(cells, rows.shape[1])[starts[places]] = rows
    goes = cells.data
    for piece, start in zip(others.values(), starts[[*others]].tolist(), strict=True):
        goes[start : start + len(piece)] = piece
    return goes
