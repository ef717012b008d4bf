"""The four wandb routes of the seeds, for the hook's fallback, the upstream exporter and anybody's own client."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Source, hookimpl

from .source import WandbApi


@hookimpl
def lens_sources() -> Sequence[type[Source]]:
    """Announce the source."""
    return [WandbApi]
