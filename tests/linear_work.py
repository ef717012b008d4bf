"""Comparing how much work two sizes of one input make: 16 times the input may not be 80 times the work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from lens_core.base.errors import LensError

_REPEATS = 3
_TRIES = 4
_TIMES_THE_INPUT = 16
# Work that is quadratic takes 256 times as long. What is linear takes up to 45 times, where a small input fits into a
# processor's cache and a large one does not; a smaller factor could not tell that from work that grows too fast.
_MOST_TIMES_THE_WORK = 80.0
# Below this the clock and the interpreter's own affairs are most of what is measured.
_ENOUGH_SECONDS = 0.0005


def assert_linear(work: Callable[[bytes], Any], make: Callable[[int], bytes], size: int = 1000) -> None:
    """Fail when work grows faster than its input; a refusal (LensError) is an answer like any other.

    CPU time is compared, never an absolute one; the size grows until there is enough to compare, up to a body that
    is as large as the gate takes.
    """
    while len(make(_TIMES_THE_INPUT * size)) < 4_000_000 and _seconds(work, make(size)) < _ENOUGH_SECONDS:
        size *= 2
    ratios = []
    for _ in range(_TRIES):
        ratio = _seconds(work, make(_TIMES_THE_INPUT * size)) / max(_seconds(work, make(size)), _ENOUGH_SECONDS)
        if ratio < _MOST_TIMES_THE_WORK:
            return
        ratios.append(ratio)
    raise AssertionError(f"{_TIMES_THE_INPUT} times the input is {min(ratios):.0f} times the work (size {size})")


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
