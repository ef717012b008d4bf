"""Event files of TensorBoard: what `tensorboard`, torch, tensorboardX and TensorFlow write, followed as it grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lens_core import Collector, hookimpl
from lens_core.plugin_api.following import Following

from .rows import (
    EventFile,
    Piece,
    Progress,
    State,
    TensorBoardSettings,
    event_files,
    is_read,
    read_piece,
)

__all__ = ["TensorBoard", "TensorBoardSettings", "lens_collectors"]


class TensorBoard(Following):
    """Scalars of TensorBoard's event files as training rows, followed while they grow, resumed where it stopped."""

    name = "tensorboard"
    Settings = TensorBoardSettings
    State = State
    interval_seconds: ClassVar[float] = 5.0

    settings: TensorBoardSettings

    @classmethod
    def settings_from(cls, environ: Mapping[str, str]) -> TensorBoardSettings | None:
        """Usable with LENS_TENSORBOARD_DIRS, directories with colons between them."""
        paths = [path for path in environ.get("LENS_TENSORBOARD_DIRS", "").split(":") if path]
        return TensorBoardSettings(paths=paths) if paths else None

    def find_files(self, roots: Sequence[Path]) -> Mapping[str, EventFile]:
        """As Following."""
        files = [file for root in roots for file in event_files(root, self.settings.max_files)]
        if len(files) >= self.settings.max_files:
            self.context.logger.warning(
                "There are more event files than max_files; the rest is not followed. max_files=%d", len(files)
            )
        return {file.path: file for file in files}

    def read_next(self, path: str, files: Mapping[str, EventFile], progress: Mapping[str, Progress]) -> Piece | None:
        """As Following."""
        file, before = files[path], progress.get(path)
        try:
            if is_read(file, progress):
                return None
            earlier = [
                (other, progress[other.path])
                for other in files.values()
                if other.run == file.run and other.order < file.order and other.path in progress
            ]
            piece = read_piece(file, before, earlier, self.settings)
        except OSError as error:
            self._log_problem(path, before, f"it cannot be read: {error.strerror or error}")
            return None
        self._log_problem(path, before, piece.progress.problem)
        if piece.damaged:
            self.context.logger.warning("Events could not be read. file=%s events=%d", path, piece.damaged)
        if piece.skipped:
            self.context.logger.info("Skipped large events. file=%s events=%d", path, piece.skipped)
        return piece

    def _log_problem(self, path: str, before: Progress | None, problem: str) -> None:
        """A problem once, until it is another; what comes after it is read if it recovers."""
        if problem and (before is None or before.problem != problem):
            self.context.logger.warning("An event file has a problem. file=%s problem=%s", path, problem)


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [TensorBoard]
