"""The logs that wandb keeps of its runs (`run-ID.wandb`), offline and online: backfill where nothing is sent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from lens_core import Collector, hookimpl
from lens_core.plugin_api.following import Followed, Following

from .logs import Piece, Progress, read_piece
from .messages import WandbOfflineSettings

__all__ = ["WandbOffline", "WandbOfflineSettings", "lens_collectors"]

_OFFLINE = "offline-run-"


class State(Followed):
    """State that outlasts a restart: progress by path."""

    files: dict[str, Progress] = msgspec.field(default_factory=dict)


class WandbOffline(Following):
    """Rows, starts and ends of runs out of wandb's own logs, also while they are written and after a crash."""

    name = "wandb_offline"
    Settings = WandbOfflineSettings
    State = State
    state_file = "logs.json"
    interval_seconds: ClassVar[float] = 15.0

    settings: WandbOfflineSettings

    @classmethod
    def settings_from(cls, environ: Mapping[str, str]) -> WandbOfflineSettings | None:
        """Usable with WANDB_DIR, the directory that wandb itself writes to."""
        folder = environ.get("WANDB_DIR", "")
        return WandbOfflineSettings(paths=[folder]) if folder else None

    async def start(self) -> None:
        """As Following."""
        await super().start()
        self._said: set[tuple[str, str]] = set()

    def find_files(self, roots: Sequence[Path]) -> Mapping[str, Path]:
        """As Following."""
        found = sorted({path for root in roots for path in self._logs(root)}, key=lambda path: (path.parent.name, path))
        if len(found) > self.settings.max_files:
            self.context.logger.warning("There are more logs than are followed. logs=%d", len(found))
        return {str(path): path for path in found[-self.settings.max_files :]}

    def read_next(self, path: str, files: Mapping[str, Path], progress: Mapping[str, Progress]) -> Piece | None:
        """As Following."""
        before = progress.get(path)
        try:
            piece = read_piece(files[path], before, self.settings)
        except OSError as error:
            self._log_problem(path, f"it cannot be read: {error.strerror or error}")
            return None
        except ValueError as error:
            self._log_problem(path, str(error))
            return None
        if piece is not None and piece.progress.damaged > (before.damaged if before else 0):
            self._log_problem(path, "parts of it are damaged and were left out")
        return piece

    def _log_problem(self, path: str, problem: str) -> None:
        if (path, problem) not in self._said:
            self._said.add((path, problem))
            self.context.logger.warning("A log of wandb has a problem. file=%s problem=%s", path, problem)

    def _logs(self, root: Path) -> Iterator[Path]:
        for folder, folders, names in os.walk(root):
            # Files, media and wandb's own logs are in folders of their own below a run's.
            folders[:] = [name for name in folders if name not in ("files", "logs", "tmp")]
            offline = Path(folder).name.startswith(_OFFLINE)
            if offline or self.settings.online:
                for name in names:
                    if name.startswith("run-") and name.endswith(".wandb"):
                        yield Path(folder, name)


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [WandbOffline]
