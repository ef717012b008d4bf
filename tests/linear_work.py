"""Comparing how much work two sizes of one input make: four times the input may not be eight times the work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from lens_core.base.errors import LensError

_REPEATS = 3
_TRIES = 4
_MOST_TIMES_THE_WORK = 8.0
# Below this the clock and the interpreter's own affairs are most of what is measured.
_ENOUGH_SECONDS = 0.002


def assert_linear(work: Callable[[bytes], Any], make: Callable[[int], bytes], size: int = 1000) -> None:
    """Fail when work grows faster than its input; a refusal (LensError) is an answer like any other.

    CPU time is compared, never an absolute one; the size grows until there is enough to compare, up to a body that
    is as large as the gate takes.
    """
    while len(make(4 * size)) < 4_000_000 and _seconds(work, make(size)) < _ENOUGH_SECONDS:
        size *= 2
    ratios = []
    for _ in range(_TRIES):
        ratio = _seconds(work, make(4 * size)) / max(_seconds(work, make(size)), _ENOUGH_SECONDS)
        if ratio < _MOST_TIMES_THE_WORK:
            return
        ratios.append(ratio)
    raise AssertionError(f"four times the input is {min(ratios):.0f} times the work (size {size})")


def _seconds(work: Callable[[bytes], Any], data: bytes) -> float:
    taken = []
    for _ in range(_REPEATS):
        before = time.thread_time()
        with contextlib.suppress(LensError):
            work(data)
        taken.append(time.thread_time() - before)
        if taken[-1] > 1.0:  # enough to be sure of
            break
    return min(taken)
