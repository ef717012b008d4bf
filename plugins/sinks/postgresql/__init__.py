"""The PostgreSQL sink, which is also the store that answers the query routes."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Sink, hookimpl

from .plugin import PostgreSQL


@hookimpl
def lens_sinks() -> Sequence[type[Sink]]:
    """Announce the sink."""
    return [PostgreSQL]
