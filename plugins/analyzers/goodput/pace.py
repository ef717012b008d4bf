"""The typical and the best time of a step: medians over the intervals around each interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .facts import Floats
from .series import Life

SIDE = 25
MIN_INTERVALS = 5
_CHUNK = 4_000


def bases_of(lives: Sequence[Life]) -> list[Floats | None]:
    """For each attempt the typical microseconds per step around each of its intervals; None where nobody can tell.

    An attempt of fewer than five intervals has that of the attempt before it with equal pace key, else of the next.
    """
    own = [_medians(_seconds_per_step(life)) if len(life.times) > MIN_INTERVALS else None for life in lives]
    found: list[Floats | None] = []
    for index, (life, base) in enumerate(zip(lives, own, strict=True)):
        if base is None:
            near = _neighbour(index, lives, own)
            count = max(len(life.times) - 1, 1)
            base = np.full(count, near) if near is not None else None
        found.append(base)
    return found


def best_of(lives: Sequence[Life], bases: Sequence[Floats | None]) -> dict[tuple[int | None, str], float]:
    """For each pace key the best sustained microseconds per step."""
    best: dict[tuple[int | None, str], float] = {}
    for life, base in zip(lives, bases, strict=True):
        if base is not None and len(base):
            lowest = float(base.min())
            best[life.pace_key] = min(best.get(life.pace_key, lowest), lowest)
    return best


def _neighbour(index: int, lives: Sequence[Life], own: Sequence[Floats | None]) -> float | None:
    """The pace at which the attempt before ended, or the one after began."""
    key = lives[index].pace_key
    for other in range(index - 1, -1, -1):
        base = own[other]
        if base is not None and lives[other].pace_key == key:
            return float(base[-1])
    for other in range(index + 1, len(lives)):
        base = own[other]
        if base is not None and lives[other].pace_key == key:
            return float(base[0])
    return None


def _seconds_per_step(life: Life) -> Floats:
    return np.diff(life.times) / np.diff(life.steps)


def _medians(values: Floats) -> Floats:
    """The median of each value with 25 on either side, clipped to the ends."""
    count, width = len(values), 2 * SIDE + 1
    found = np.empty(count)
    edges = (*range(SIDE), *range(count - SIDE, count)) if count >= width else range(count)
    if count >= width:
        windows = np.lib.stride_tricks.sliding_window_view(values, width)
        for begin in range(0, len(windows), _CHUNK):
            part = windows[begin : begin + _CHUNK]
            found[SIDE + begin : SIDE + begin + len(part)] = np.partition(part, SIDE, axis=1)[:, SIDE]
    for index in edges:
        found[index] = np.median(values[max(0, index - SIDE) : index + SIDE + 1])
    return found
