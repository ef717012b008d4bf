"""Stacks of the local ranks as records of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from lens_core import Collector, hookimpl

from .diagnosis.base import AgentOptions, DataCollector
from .diagnosis.plugin import DiagnosisCollector, DiagnosisSettings
from .diagnosis.stack import INTERVAL_SECONDS, StackCollector


class StacksSettings(DiagnosisSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the stacks collector."""

    pids: Annotated[tuple[int, ...], Meta(description="processes to look at; those with a RANK if none are given")] = ()
    local_world_size: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="look at no more ranks than these")
    ] = None
    may_pause: Annotated[
        bool, Meta(description="stop a process for some milliseconds where its stack cannot be read otherwise")
    ] = True


class Stacks(DiagnosisCollector):
    """Looks at what the local ranks are doing, with py-spy: one while it moves, all while it stands still."""

    name = "stacks"
    interval_seconds = INTERVAL_SECONDS
    Settings = StacksSettings

    @classmethod
    def data_collector(cls, options: AgentOptions) -> DataCollector:
        """The agent's own."""
        return StackCollector(options.local_world_size)

    def make(self) -> DataCollector:
        """The collector behind it."""
        settings = self.settings
        return StackCollector(settings.local_world_size, settings.pids, may_pause=settings.may_pause)


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [Stacks]
