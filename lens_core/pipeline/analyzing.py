"""Runs an analyzer by the runner of collectors: the store is its other side, and what changed there its question."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..base.data_dir import load_state, save_state
from ..base.errors import LensError
from ..model.records import Record
from ..plugin_api.analyzer import Analyzer
from ..plugin_api.components import Collector

_FILE = "changes.json"


class _Seen(msgspec.Struct):
    """The cursor of the store up to which an analyzer has seen changes."""

    cursor: str = ""


class AnalyzerPoll(Collector):
    """An analyzer as a collector: one collection is one look at the workloads that changed.

    The cursor lies in the analyzer's folder, beside what it made of the changes: who deletes the folder has all of it
    made again.
    """

    def __init__(self, analyzer: Analyzer, wants: Callable[[type[Record]], bool] = lambda kind: True) -> None:
        super().__init__(analyzer.settings, analyzer.context)
        self.analyzer = analyzer
        self._wants = wants
        self._path = analyzer.context.data_dir / _FILE
        self._seen: _Seen | None = None
        self._next = ""

    async def collect(self) -> Sequence[Record]:
        """Ask the store which workloads changed, and the analyzer what follows."""
        if self._seen is None:
            self._seen = self._load()
        try:
            changed, self._next = await self.analyzer.store.changed_workloads(self._seen.cursor)
        except LensError:
            raise
        except Exception as error:
            raise LensError(f"the store does not answer: {type(error).__name__}: {error}") from error
        records = await self.analyzer.analyze(changed)
        # Series are for sinks that take them; without one they are no loss that anybody has to hear of.
        unwanted = {kind for kind in map(type, records) if issubclass(kind, Record) and not self._wants(kind)}
        return [record for record in records if type(record) not in unwanted] if unwanted else records

    async def stored(self) -> None:
        """Ask only for later changes from now on."""
        await self.analyzer.stored()
        assert self._seen is not None
        if self._next != self._seen.cursor:
            self._seen = _Seen(self._next)
            save_state(self._path, self._seen)

    def _load(self) -> _Seen:
        try:
            return load_state(self._path, _Seen)
        except msgspec.DecodeError as error:
            self.context.logger.warning("Could not read the cursor; analyzing all workloads. error=%s", error)
            return _Seen()
