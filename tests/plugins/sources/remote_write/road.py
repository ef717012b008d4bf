"""A passage with a directory of its own; without templates it reads every label set, and the rest must equal that."""

from __future__ import annotations

from collections.abc import Sequence

from lens_plugins.sources.remote_write.drops import Drops
from lens_plugins.sources.remote_write.enriching import Enricher
from lens_plugins.sources.remote_write.passed import Passed
from lens_plugins.sources.remote_write.passing import Passage
from lens_plugins.sources.remote_write.settings import RemoteWriteSettings

from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from tests.plugins.sources.remote_write.conftest import PODS


class Road:
    """Takes the series of requests, one request after the other."""

    def __init__(self, *, templates: bool = True, cached_series: int = 150_000) -> None:
        self.directory = Directory()
        self.directory.replace(PODS, "test")
        self.enricher = Enricher(RemoteWriteSettings(cached_series=cached_series), self.directory)
        self.passage = Passage(self.enricher, Drops(10, SelfMetrics()))
        if not templates:
            self.enricher.templates.learn = lambda *_: None

    def take(self, raw: Sequence[bytes]) -> Passed:
        """What becomes of the series of one request."""
        passed = Passed()
        self.enricher.begin()
        self.passage.take(raw, passed)
        return passed


def outcome(road: Road, series: Sequence[bytes]) -> tuple[object, ...]:
    """What goes on, and what is counted; or why the request is refused."""
    try:
        passed = road.take(series)
    except ValueError as error:
        return (str(error),)
    counts = (passed.series, passed.samples, passed.unattached, passed.dropped)
    return b"".join(passed.pieces), *counts, passed.refused, sorted(passed.messages)
