"""Prometheus remote write, with the pod and the workload attached to every series that has one."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Source, hookimpl

from .source import RemoteWrite


@hookimpl
def lens_sources() -> Sequence[type[Source]]:
    """Announce the source."""
    return [RemoteWrite]
