"""Event files of TensorBoard: what `tensorboard`, torch, tensorboardX and TensorFlow write, followed as it grows."""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Collector, hookimpl

from .collector import TensorBoard
from .settings import TensorBoardSettings

__all__ = ["TensorBoard", "TensorBoardSettings", "lens_collectors"]


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [TensorBoard]
