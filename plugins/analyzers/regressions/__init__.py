"""Finds what got worse within a job: loss, pace, memory, checkpoints, and restores that were wrong.

Each module of rules (`loss.py`, `pace.py`, `memory.py`, `replay.py`) is pure and answers findings (`finding.py`).
`job.py` reads a job from the store and applies them all; `analyzer.py` reports each finding once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lens_core import Analyzer, hookimpl

from .analyzer import Regressions

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]

__all__ = ["Regressions", "lens_analyzers", "plugin"]

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]


@hookimpl
def lens_analyzers() -> Sequence[type[Analyzer]]:
    """The analyzer of regressions."""
    return [Regressions]
