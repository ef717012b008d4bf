"""A master for diagnosis: what DLRover's agents report to their master, an unmodified agent can report to Lens."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Source, hookimpl

from .source import DlroverMaster, DlroverMasterSettings


@hookimpl
def lens_sources() -> Sequence[type[Source]]:
    """Announce the source."""
    return [DlroverMaster]


__all__ = ["DlroverMaster", "DlroverMasterSettings", "lens_sources"]
