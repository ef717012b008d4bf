"""The goodput ledger: which share of a run's time made progress, and what took the rest.

`facts.py` is what goes in and comes out, `ledger.py` the ledger; both are pure. `log_facts.py` and `log_file.py` make
facts of a log, `store_facts.py` of what a store holds. `analyzer.py` keeps the ledgers of all workloads and answers for
them, `command.py` is `lens goodput`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from lens_core import Analyzer, hookimpl

from .analyzer import Goodput
from .command import command

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]

__all__ = ["Goodput", "command", "lens_analyzers", "lens_commands", "plugin"]

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]


@hookimpl
def lens_commands() -> Sequence[click.Command]:
    """`lens goodput`."""
    return [command]


@hookimpl
def lens_analyzers() -> Sequence[type[Analyzer]]:
    """The analyzer of goodput."""
    return [Goodput]
