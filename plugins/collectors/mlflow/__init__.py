"""Runs of an MLflow tracking server, while they run and once they have ended: for jobs that have no hook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lens_core import Collector, LensError, Partial, Record, hookimpl, load_state, save_state

from .api import MlflowApi
from .following import FollowedRuns, Found, Round, first_problem, merge_found
from .settings import MlflowSettings, settings_of_environment

__all__ = ["Mlflow", "MlflowSettings", "lens_collectors"]


class Mlflow(Collector):
    """Rows, starts, ends and facts of the runs of an MLflow tracking server, resumed where it stopped."""

    name = "mlflow"
    Settings = MlflowSettings
    interval_seconds: ClassVar[float] = 30.0

    settings: MlflowSettings
    _server: MlflowApi | None = None
    _round: Round | None = None
    _found: Found | None = None

    @classmethod
    def settings_from(cls, environ: Mapping[str, str]) -> MlflowSettings | None:
        """Usable with MLFLOW_TRACKING_URI, if that is a server."""
        return settings_of_environment(environ)

    async def start(self) -> None:
        """Load how far every run was read, and log in."""
        self._state = await asyncio.to_thread(load_state, self._path, FollowedRuns)
        self._server = await asyncio.to_thread(MlflowApi, self.settings, self.context.logger)

    async def stop(self) -> None:
        """Close the connections."""
        if self._server is not None:
            await self._server.close()
            self._server = None

    async def check(self) -> None:
        """List the experiments."""
        server = await asyncio.to_thread(MlflowApi, self.settings, self.context.logger)
        try:
            await server.experiments()
        finally:
            await server.close()

    async def collect(self) -> Sequence[Record] | Partial:
        """The next part of a round over the runs; `more` says that the round goes on. Raises LensError."""
        if self._found is not None:
            self._round = self._found = None  # what was found last is not stored: begin again
        self.more = False
        if self._server is None:
            raise LensError("the collector mlflow has not been started")
        current, self._round = self._round, None  # it goes on only if nothing fails
        if current is None:
            experiments = await self._server.experiments()
            current = Round(self._server, self.settings, self.context.logger, experiments)
        found = await current.read_on(self._state)
        if found.problems and not found.records and not found.cursors:
            raise LensError(first_problem(found.problems))
        self._found = found
        self.more = not current.is_over
        self._round = current if self.more else None
        if found.problems:
            return Partial(records=found.records, problem=first_problem(found.problems))
        return found.records

    async def stored(self) -> None:
        """Go on after what was read."""
        found, self._found = self._found, None
        if found is None:
            return
        self._state = merge_found(self._state, found)
        if found.cursors or found.dropped:
            await asyncio.to_thread(save_state, self._path, self._state)

    @property
    def _path(self) -> Path:
        return self.context.data_dir / "runs.json"


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [Mlflow]
