"""Rows by which metrics they have: those with the same ones make a table of numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import methodcaller
from typing import NamedTuple

import numpy as np

from .series import Doubles

# From so many rows on a table is made of them: of fewer it costs more than it saves.
MANY_ROWS = 32
_values = methodcaller("values")


class Layout(NamedTuple):
    """Rows with the same metrics: their places, and their values as a table, a row for each, if they are many."""

    names: tuple[str, ...]
    places: Sequence[int]
    table: Doubles | None


def layouts_of(rows: Sequence[Mapping[str, float]]) -> list[Layout]:
    """Rows by their metrics, those of the first row first."""
    found: dict[tuple[str, ...], Sequence[int]] = {}
    distinct = set(map(tuple, rows))  # mostly one, and then nothing is kept of each row
    if len(distinct) == 1:
        found[distinct.pop()] = range(len(rows))
    else:
        apart: dict[tuple[str, ...], list[int]] = {}
        for place, row in enumerate(rows):
            apart.setdefault(tuple(row), []).append(place)
        found.update(apart)
    return [
        Layout(names, places, _table_of(rows, places, len(names)) if len(places) >= MANY_ROWS else None)
        for names, places in found.items()
    ]


def _table_of(rows: Sequence[Mapping[str, float]], places: Sequence[int], width: int) -> Doubles:
    numbers = chain.from_iterable(map(_values, rows if len(places) == len(rows) else [rows[place] for place in places]))
    return np.fromiter(numbers, np.float64, len(places) * width).reshape(len(places), width)
