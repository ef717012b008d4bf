"""Makes one series of progress per attempt: one source, one rank, first-logged times, steps that only rise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from .facts import Attempt, Facts, Ints, Span
from .rows import MICRO, Key, fullest, longest, rising, series_of

# With a clock of whole seconds, steps of a few seconds seem to take now one second more, now one less.
_QUANTUM = MICRO
_COARSE_SHARE = 0.05
_COARSE_BELOW = 10 * MICRO
_COARSE_INTERVALS = (20 * MICRO, 120 * MICRO)
_COARSE_COUNT = 50
# GPUs and configuration.
PaceKey: TypeAlias = tuple[int | None, str]
_NONE: Ints = np.empty(0, dtype=np.int64)


@dataclass
class Life:
    """An attempt in whole microseconds since the run began, with the rows that count."""

    facts: Attempt
    start: int
    end: int
    steps: Ints
    times: Ints
    resumed_from: int
    rewritten: set[int] = field(default_factory=set)
    every: int = 1
    is_coarse: bool = False

    @property
    def pace_key(self) -> PaceKey:
        """Step times may be compared only among attempts that agree in this: that of its end, if it changes."""
        changes = self.facts.configurations
        return self.facts.gpus, changes[-1][1] if changes else self.facts.configuration


def lives_of(facts: Facts) -> tuple[list[Life], int]:
    """The attempts in the order of their starts, and the microsecond (since the epoch) at which the first began."""
    all_series = [series_of(attempt) for attempt in facts.attempts]
    counts: Counter[Key] = Counter()
    for series in all_series:
        counts.update({key: len(steps) for key, (steps, _) in series.items()})
    key = fullest(counts)
    drafts = [
        draft
        for attempt, series in zip(facts.attempts, all_series, strict=True)
        for draft in _drafts(attempt, series, key)
    ]
    drafts.sort(key=lambda draft: draft.start)
    lives: list[Life] = []
    for index, draft in enumerate(drafts):
        following = drafts[index + 1].start if index + 1 < len(drafts) else None
        if following is not None:  # a process that outlives its successor's start is not used from there on
            kept = draft.times <= following
            draft.steps, draft.times = draft.steps[kept], draft.times[kept]
        draft.end = _end(draft, following, facts.now, is_last=following is None)
        draft.every = max(1, int(np.median(np.diff(draft.steps)))) if len(draft.steps) > 1 else 1
        draft.resumed_from = _resumed_from(draft, is_first=index == 0)
        _thin(draft)
        lives.append(draft)
    origin = lives[0].start if lives else 0
    for life in lives:
        life.start, life.end, life.times = life.start - origin, life.end - origin, life.times - origin
    return lives, origin


def micros(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * MICRO)


def _drafts(attempt: Attempt, series: dict[Key, tuple[Ints, Ints]], key: Key) -> Iterator[Life]:
    """The attempt, and one more for each time that its steps go back.

    Where the run's source is silent in this attempt, its fullest one stands in.
    """
    own_key = key if key in series else longest(series)
    parts = list(rising(*series[own_key])) if own_key is not None else []
    if not parts:
        parts = [(_NONE, _NONE, set())]
    known = [micros(moment) for moment in (attempt.start, attempt.end) if moment is not None]
    first = parts[0][1]
    if not len(first) and not known:
        return
    begun = micros(attempt.start) if attempt.start is not None else None
    start = min([moment for moment in (begun, int(first[0]) if len(first) else None) if moment is not None] or known)
    for index, (steps, times, rewritten) in enumerate(parts):
        is_last = index == len(parts) - 1
        own = attempt if index == 0 and is_last else _part_of(attempt, start, is_first=index == 0, is_last=is_last)
        yield Life(own, start, 0, steps, times, 0, rewritten)
        if len(times):
            start = int(times[-1])


def _part_of(attempt: Attempt, start: int, *, is_first: bool, is_last: bool) -> Attempt:
    """The facts of one part of an attempt whose steps go back: its process did not end there."""
    return Attempt(
        start=start / MICRO,
        end=attempt.end if is_last else None,
        resumed_from=attempt.resumed_from if is_first else None,
        restore_seconds=attempt.restore_seconds if is_first else 0.0,
        cause=attempt.cause if is_last else "rollback",
        ended_cleanly=attempt.ended_cleanly and is_last,
        node=attempt.node if is_last else "",
        rank=attempt.rank if is_last else None,
        gpus=attempt.gpus,
        configuration=attempt.configuration,
        configurations=attempt.configurations,
        restarts=attempt.restarts,
        saves=attempt.saves,
        evaluations=attempt.evaluations,
        data=attempt.data,
        waits=attempt.waits,
        stalls=attempt.stalls,
    )


def _thin(life: Life) -> None:
    """Keep only rows that are far enough apart for the clock, where its ticks are about as long as the steps."""
    took = np.diff(life.times)
    if not len(took) or np.any(took % _QUANTUM) or np.median(took) >= _COARSE_BELOW:
        return
    if np.mean(np.abs(took - np.median(took)) == _QUANTUM) <= _COARSE_SHARE and np.median(took) > 0:
        return
    shortest, longest = _COARSE_INTERVALS
    apart = min(longest, max(shortest, int(life.times[-1] - life.times[0]) // _COARSE_COUNT))
    kept = [0]
    while True:
        index = int(np.searchsorted(life.times, life.times[kept[-1]] + apart))
        if index >= len(life.times):
            break
        kept.append(index)
    if kept[-1] != len(life.times) - 1:
        kept.append(len(life.times) - 1)
    life.steps, life.times, life.is_coarse = life.steps[kept], life.times[kept], True


def _end(life: Life, following: int | None, now: float | None, *, is_last: bool) -> int:
    """The end of an attempt, never before its last row nor after its successor's start."""
    last = int(life.times[-1]) if len(life.times) else life.start
    if life.facts.end is not None:
        end = micros(life.facts.end)
    elif is_last and now is not None:
        end = micros(now)
    else:
        end = last if following is None else following
    end = max(end, last)
    return end if following is None else min(end, following)


def _resumed_from(life: Life, *, is_first: bool) -> int:
    """The iteration from which an attempt went on."""
    told = life.facts.resumed_from
    if not len(life.steps):
        return 0 if told is None else told
    first, every = int(life.steps[0]), life.every
    if told is not None and told <= first:  # a higher one is that of a model from which training began anew
        return told
    if is_first and first <= every:
        return 0 if first > 0 else first
    return first - every if first % every == 0 else first - 1


def clamp(span: Span, life: Life, origin: int) -> tuple[int, int]:
    """A span in microseconds since the run began; one of another clock is moved after the row of its step."""
    start, end = micros(span.start) - origin, micros(span.end) - origin
    end = max(start, end)
    if span.step is None or not len(life.steps) or not life.steps[0] <= span.step <= life.steps[-1]:
        return start, end
    index = int(np.searchsorted(life.steps, span.step, side="right")) - 1
    lowest = int(life.times[index])
    highest = int(life.times[index + 1]) if index + 1 < len(life.times) else max(life.end, lowest)
    moved = start if lowest <= start <= highest else lowest
    return moved, moved + (end - start)
