"""Stalls of jobs without a log: rows of a tracker that stop coming although nobody said that the job ended.

The pipeline's detectors find the stalls of jobs whose log it reads. `pulse.py` is what is remembered of a job, and the
rule; `analyzer.py` asks the store and reports.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lens_core import Analyzer, hookimpl

from .analyzer import Stalls

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]

__all__ = ["Stalls", "lens_analyzers", "plugin"]


@hookimpl
def lens_analyzers() -> Sequence[type[Analyzer]]:
    """The analyzer of stalls."""
    return [Stalls]
