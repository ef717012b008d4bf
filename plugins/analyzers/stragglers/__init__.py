"""Slow ranks: whether one rank, a node, a stage or uneven data holds the others up, or whether nobody can tell.

`verdict.py` judges windows of times per rank; it is pure. `job.py` makes the windows of what a store holds,
`analyzer.py` reports. Step times of synchronous training say nothing about it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lens_core import Analyzer, hookimpl

from .analyzer import Stragglers

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]

__all__ = ["Stragglers", "lens_analyzers", "plugin"]

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]


@hookimpl
def lens_analyzers() -> Sequence[type[Analyzer]]:
    """The analyzer of stragglers."""
    return [Stragglers]
