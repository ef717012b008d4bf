"""Puts the rows of an attempt in order: one rank's of one source, each once, cut where the steps go back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .facts import Attempt, Floats, Ints, Rows

MICRO = 1_000_000
_WHOLE = 0.9
_WINDOW = 256
Key = tuple[str, int | None]


def series_of(attempt: Attempt) -> dict[Key, tuple[Ints, Ints]]:
    """For each source and rank its steps and microseconds in the order of time, each row once."""
    parts: dict[Key, list[Rows]] = {}
    for columns in (*attempt.columns, *_columns_of(attempt)):
        parts.setdefault((columns.source, columns.rank), []).append(columns)
    found = {}
    for key, same in parts.items():
        steps = np.concatenate([part.steps for part in same])
        times = np.rint(np.concatenate([part.times for part in same]) * MICRO).astype(np.int64)
        found[key] = _ordered(steps, times)
    return found


def fullest(counts: dict[Key, int]) -> Key:
    """The source with most rows, and of its ranks the lowest that has nearly all of them."""
    if not counts:
        return "log", None
    most = max(counts.values())
    whole = [found for found, count in counts.items() if count >= _WHOLE * most]
    return min(whole, key=lambda found: (-1 if found[1] is None else found[1], found[0] != "log", found[0]))


def longest(series: dict[Key, tuple[Ints, Ints]]) -> Key | None:
    """The source and rank with most rows in one attempt."""
    if not series:
        return None
    return min(series, key=lambda key: (-len(series[key][0]), -1 if key[1] is None else key[1], key[0]))


def rising(steps: Ints, times: Ints) -> Iterator[tuple[Ints, Ints, set[int]]]:
    """Parts in which steps rise, each with the steps that were written again later: those mark an evaluation.

    Steps that went back and are not done again from there on are late writes (sums of an epoch), not a restart.
    """
    following = _next_others(steps)
    begin = 0
    while begin < len(steps):
        end, late = _part(steps, following, begin)
        own_steps, own_times = steps[begin:end], times[begin:end]
        if len(late):
            kept = np.ones(end - begin, dtype=bool)
            kept[late - begin] = False
            own_steps, own_times = own_steps[kept], own_times[kept]
        yield own_steps, own_times, set(steps[late].tolist())
        begin = end


def _columns_of(attempt: Attempt) -> Iterator[Rows]:
    """The single rows as columns."""
    parts: dict[Key, tuple[list[int], list[float]]] = {}
    for row in attempt.rows:
        steps, times = parts.setdefault((row.source, row.rank), ([], []))
        steps.append(row.step)
        times.append(row.time)
    for (source, rank), (steps, times) in parts.items():
        yield Rows(np.array(steps, dtype=np.int64), np.array(times, dtype=np.float64), rank, source)


def _ordered(steps: Ints, times: Ints) -> tuple[Ints, Ints]:
    if len(times) > 1 and not np.all(np.diff(times) > 0):
        order = np.lexsort((steps, times))
        steps, times = steps[order], times[order]
        is_new = np.ones(len(steps), dtype=bool)
        is_new[1:] = (np.diff(times) != 0) | (np.diff(steps) != 0)
        steps, times = steps[is_new], times[is_new]
    return steps, times


def _next_others(steps: Ints) -> Ints:
    """For each row the next step that is another than its own; -1 where none follows."""
    last_of_each = np.append(np.flatnonzero(np.diff(steps)), len(steps) - 1)
    length = np.diff(last_of_each, prepend=-1)
    following = np.append(steps[last_of_each[:-1] + 1], -1)
    return np.repeat(following, length)


def _part(steps: Ints, following: Ints, begin: int) -> tuple[int, Ints]:
    """The end of the part that begins here, and the places of its late writes."""
    late: list[Ints] = []
    reached, at, size = int(steps[begin]), begin + 1, _WINDOW
    while at < len(steps):
        window = steps[at : at + size]
        highest = np.maximum.accumulate(np.append(reached, window))
        back = np.flatnonzero(window <= highest[:-1])
        behind = following[at + back]
        is_late = (window[back] == highest[back]) | (behind < 0) | (behind > highest[back])
        if not np.all(is_late):
            first = int(np.argmin(is_late))
            late.append(at + back[:first])
            return at + int(back[first]), np.concatenate(late)
        late.append(at + back)
        reached, at, size = int(highest[-1]), at + len(window), size * 2
    return len(steps), np.concatenate(late) if late else np.empty(0, dtype=np.int64)


def waits_of(attempt: Attempt) -> tuple[Ints, Floats]:
    """The logged waits for data: steps in order and seconds, the last that was logged for a step."""
    steps = np.array([wait.step for wait in attempt.data], dtype=np.int64)
    seconds = np.array([wait.seconds for wait in attempt.data], dtype=np.float64)
    if attempt.waits is not None:
        steps = np.concatenate([attempt.waits.steps, steps])
        seconds = np.concatenate([attempt.waits.seconds, seconds])
    order = np.argsort(steps, kind="stable")
    steps, seconds = steps[order], seconds[order]
    is_last = np.append(np.diff(steps) != 0, True) if len(steps) else np.empty(0, dtype=bool)
    return steps[is_last], seconds[is_last]
