"""The analyzer: a plugin that works something out of what a store holds. Import it from lens_core. Since 1.3."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ..model.records import Record
from .components import Component, Route
from .store import Store


class Analyzer(Component):
    """Something that is worked out of stored records: a finding, a sum. The host keeps the schedule and the time limit.

    `store` is the store that answers the query routes; the host sets it before `start`, and an analyzer only asks it.
    An analyzer lives in the daemon and must not block its event loop: long calculations belong into a thread. What it
    keeps beside the store lies in its own folder, `context.data_dir`, and can be made again from the store.
    """

    interval_seconds: ClassVar[float] = 60.0
    timeout_seconds: ClassVar[float] = 120.0
    store: Store

    @abstractmethod
    async def analyze(self, changed: Sequence[str]) -> Sequence[Record]:
        """Look at the workloads that changed since the last call that succeeded; the very first call has all.

        The answer goes the way of all records: events, measurements. Raises when it failed: the same workloads, and
        those that change meanwhile, come again. The host remembers how far it got in the analyzer's folder.
        """

    async def stored(self) -> None:
        """Every pipeline's spool holds what `analyze` answered last: the place to remember what was reported."""

    def routes(self) -> Sequence[Route]:
        """HTTP routes that answer what this analyzer knows; their `role` is `read`; none by default."""
        return ()
