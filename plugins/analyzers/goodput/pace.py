"""The typical and the best time of a step: medians over the intervals around each interval, of one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .facts import Floats
from .series import Life, PaceKey

SIDE = 25
MIN_INTERVALS = 5
_CHUNK = 4_000


class _Stretch(NamedTuple):
    """Intervals in a row, of one attempt, whose step times may be compared."""

    begin: int
    end: int
    key: PaceKey


def bases_of(lives: Sequence[Life]) -> list[Floats | None]:
    """For each attempt the typical microseconds per step around each of its intervals; None where nobody can tell.

    A configuration that has fewer than five intervals in a row has the pace of the stretch before it with equal pace
    key, else of the next; one that changes in the middle of an attempt and has none elsewhere has its own few.
    """
    seconds = [_seconds_per_step(life) for life in lives]
    stretches = [(number, stretch) for number, life in enumerate(lives) for stretch in _stretches(life)]
    own = [
        _medians(seconds[number][stretch.begin : stretch.end]) if stretch.end - stretch.begin >= MIN_INTERVALS else None
        for number, stretch in stretches
    ]
    parts: list[list[Floats | None]] = [[] for _ in lives]
    for index, (number, stretch) in enumerate(stretches):
        base = own[index]
        if base is None:
            near = _neighbour(index, stretches, own)
            base = np.full(max(stretch.end - stretch.begin, 1), near) if near is not None else None
        parts[number].append(base)
    return [
        _concatenate_stretches(part, [stretch for of, stretch in stretches if of == number], seconds[number])
        for number, part in enumerate(parts)
    ]


def best_of(lives: Sequence[Life], bases: Sequence[Floats | None]) -> dict[PaceKey, float]:
    """For each pace key the best sustained microseconds per step."""
    best: dict[PaceKey, float] = {}
    for life, base in zip(lives, bases, strict=True):
        if base is None:
            continue
        for stretch in _stretches(life):
            part = base[stretch.begin : max(stretch.end, stretch.begin + 1)]
            if len(part):
                lowest = float(part.min())
                best[stretch.key] = min(best.get(stretch.key, lowest), lowest)
    return best


def best_at(life: Life, best: dict[PaceKey, float]) -> Floats:
    """For each interval of an attempt the best microseconds per step of its configuration."""
    found = np.empty(max(0, len(life.times) - 1))
    for stretch in _stretches(life):
        found[stretch.begin : stretch.end] = best.get(stretch.key, np.inf)
    return found


def _stretches(life: Life) -> list[_Stretch]:
    """The intervals of an attempt, cut where its configuration changes; at least one stretch, which may be empty."""
    count = max(0, len(life.times) - 1)
    changes = life.facts.configurations
    if not changes or not count:
        return [_Stretch(0, count, life.pace_key)]
    # An interval has the configuration of the step that ends it.
    cuts = [int(np.searchsorted(life.steps[1:], step)) for step, _ in changes]
    return [
        _Stretch(begin, end, (life.facts.gpus, configuration))
        for (begin, end), (_, configuration) in zip(pairwise([0, *cuts[1:], count]), changes, strict=True)
        if end > begin
    ]


def _concatenate_stretches(
    parts: Sequence[Floats | None], stretches: Sequence[_Stretch], seconds: Floats
) -> Floats | None:
    """The paces of an attempt's stretches in a row; None where not one of them is known."""
    if all(part is None for part in parts):
        return None
    return np.concatenate(
        [
            part
            if part is not None
            else np.full(stretch.end - stretch.begin, np.median(seconds[stretch.begin : stretch.end]))
            for part, stretch in zip(parts, stretches, strict=True)
        ]
    )


def _neighbour(index: int, stretches: Sequence[tuple[int, _Stretch]], own: Sequence[Floats | None]) -> float | None:
    """The pace at which the stretch before with equal key ended, or the one after began."""
    key = stretches[index][1].key
    for other in range(index - 1, -1, -1):
        base = own[other]
        if base is not None and stretches[other][1].key == key:
            return float(base[-1])
    for other in range(index + 1, len(stretches)):
        base = own[other]
        if base is not None and stretches[other][1].key == key:
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
