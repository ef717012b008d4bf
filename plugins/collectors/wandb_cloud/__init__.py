"""Runs of a project on W&B's cloud (or a W&B server) as twenty metrics, and the history of chosen runs as rows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from lens_core import Collector, ConfigurationError, Record, Secret, hookimpl
from lens_core.plugin_api.credentials import find_credentials

from ..catalogue import units
from .figures import DEFAULT_BASE_URL, Access, Figures, RunFacts, WandbCloudSettings, read_run
from .history import History, remember
from .listing import Node, connect_api, list_runs, window_filter

__all__ = ["WandbCloud", "WandbCloudSettings", "lens_collectors", "plugin"]

_NAMES = ("WANDB_API_KEY", "WANDB_ENTITY", "WANDB_PROJECT")


class WandbCloud(Collector):
    """Twenty metrics about the runs of a W&B project: activity, failures, durations, GPU-hours, speed of CI runs."""

    name = "wandb_cloud"
    Settings = WandbCloudSettings
    interval_seconds: ClassVar[float] = 900.0
    isolated: ClassVar[bool] = True

    settings: WandbCloudSettings

    async def collect(self) -> Sequence[Record]:
        """List the runs of the window and compute. Raises ConfigurationError or LensError, never answers zeros."""
        access = find_access(self.settings, os.environ)
        now = time.time()
        figures = Figures(self.settings, now)
        history = History(self.settings, self._cursors)

        def append_run(node: Node) -> None:
            run: RunFacts = read_run(node, self.settings.gpus_config_key)
            figures.count_run(run)
            history.consider(run)

        (self.context.data_dir / "wandb").mkdir(parents=True, exist_ok=True)
        # Synchronous on purpose: this process has nothing else to do, and the host kills it when its time is up.
        api = connect_api(access, self.settings.request_timeout_seconds, self.context.data_dir / "wandb")
        filters = window_filter(now - self.settings.window_hours * 3600)
        runs = list_runs(api, access, filters, self.settings.page_size, append_run)
        self.context.logger.debug("Listed runs. project=%s runs=%d", access.path, runs)
        tags = {"source": "wandb", "entity": access.entity, "project": access.project}
        return [*figures.measurements(units(), tags), *history.fetch_rows(access)]

    async def stored(self) -> None:
        """The rows are safe: the next run goes on after them."""
        remember(self._cursors)

    @property
    def _cursors(self) -> Path:
        return self.context.data_dir / "history.json"


def find_access(settings: WandbCloudSettings, environ: Mapping[str, str]) -> Access:
    """Return the address and the key; raises ConfigurationError that names what is missing."""
    given: dict[str, Any] = {
        "WANDB_API_KEY": settings.api_key.reveal() if settings.api_key else "",
        "WANDB_ENTITY": settings.entity,
        "WANDB_PROJECT": settings.project,
    }
    wanted = tuple(name for name in _NAMES if not given[name])
    if wanted:
        found = find_credentials(
            wanted,
            environ,
            aws_secret=settings.aws_secret or environ.get("LENS_WANDB_AWS_SECRET", ""),
            aws_region=settings.aws_region,
        )
        given.update({name: secret.reveal() for name, secret in found.items()})
    missing = [name for name in _NAMES if not given[name]]
    if missing:
        options = {"WANDB_API_KEY": "api_key", "WANDB_ENTITY": "entity", "WANDB_PROJECT": "project"}
        which = ", ".join(f"{name} (or the setting `{options[name]}`)" for name in missing)
        raise ConfigurationError(f"wandb_cloud needs {which}; there is no default")
    return Access(
        api_key=Secret(given["WANDB_API_KEY"]),
        entity=given["WANDB_ENTITY"],
        project=given["WANDB_PROJECT"],
        base_url=(settings.base_url or environ.get("WANDB_BASE_URL", "") or DEFAULT_BASE_URL).rstrip("/"),
    )


# An entry point can only say which extra it needs when it names an object of its module.
plugin = sys.modules[__name__]


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [WandbCloud]
