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


def in_order(count: int, sheets: Sequence[Sheet], others: Mapping[int, bytes]) -> tuple[Bytes, Numbers]:
    """The rows of sheets and what goes on of others, by their places in the request, and the bounds between them."""
    sizes = np.zeros(count, np.int64)
    if others:
        sizes[[*others]] = [*map(len, others.values())]
    for places, rows in sheets:
        sizes[places] = rows.shape[1]
    bounds = np.zeros(count + 1, np.int64)
    sizes.cumsum(out=bounds[1:])
    cells = np.empty(bounds[-1], np.uint8)
    for places, rows in sheets:
        windows(cells, rows.shape[1])[bounds[places]] = rows
    goes = cells.data
    for place, piece in others.items():
        start = bounds[place]
        goes[start : start + len(piece)] = piece
    return cells, bounds
