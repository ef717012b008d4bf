"""JAX: told by what is loaded and set, and by Orbax, which saves its trainers' checkpoints.

Those print step lines of their own (MaxText in its own file).
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, hookimpl


class Jax(Detector):
    """JAX."""

    name = "jax"
    layer = "base"
    modules = ("jax",)
    distributions = ("jax",)
    environment = ("JAX_BACKEND", "JAX_PLATFORMS")
    project_keywords = ("jax",)
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("checkpoint_manager", "py", "saving", "checkpoint", "at", "step"),
            pattern=r"checkpoint_manager\.py:\d+\].*\bSaving checkpoint at step (?P<iteration>\d+)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("finished", "async_save", "time", "taken", "directory"),
            pattern=r"Finished async_save [^.]*\. Time taken: (?P<duration_seconds>[\d.]+)s\."
            r" directory=(?P<path>\S*?(?P<iteration>\d+)/?)\s*$",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Jax]
