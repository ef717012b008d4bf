"""The PostgreSQL sink, which is also the store that answers the query routes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lens_core import Sink, hookimpl

from .plugin import PostgreSQL

if TYPE_CHECKING:
    import click

# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [PostgreSQL]


@hookimpl
def lens_commands() -> Sequence[click.Command]:
    """Announce the commands `lens db` and `lens import`."""
    from .commands import db, import_history

    return [db.command, import_history.command]
