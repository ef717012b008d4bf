"""Where runs of series end, of which plates are made."""

from __future__ import annotations

import numpy as np

from ..laid import Numbers, Words

SHORTEST, LONGEST = 64, 2048
# At most so many series between those of plates.
BETWEEN = 8


def ends_of_runs(stamps: Words) -> list[int]:
    """The ends of runs of series with these timestamps, the last is the end of all.

    Where the timestamp changes, the series of another target begin, which will not always come next.
    """
    return [*(np.flatnonzero(stamps[1:] != stamps[:-1]) + 1).tolist(), len(stamps)]


def head_sizes(sizes: Numbers) -> Numbers:
    """How many bytes stand in front of series of these sizes: a tag and the size, in base 128."""
    heads: Numbers = np.full(len(sizes), 2)
    for digits in range(1, 5):
        heads += sizes >> 7 * digits > 0
    return heads
