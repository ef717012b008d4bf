"""JAX: told by what is loaded and set, by Orbax, which saves checkpoints, and by CLU, with which its examples log.

Other trainers print step lines of their own (MaxText and Levanter in their own files). Not every line of CLU's has a
loss: rates and times come on lines by themselves, and become part of the step's row.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, hookimpl


class Jax(Detector):
    """JAX."""

    name = "jax"
    layer = "base"
    modules = ("jax",)
    distributions = ("jax",)
    environment = ("JAX_BACKEND", "JAX_PLATFORMS")
    project_keywords = ("jax",)
    formats = (
        LogFormat(
            name="clu",
            words=("logging_writer", "py"),
            head=r"\blogging_writer\.py:\d+\] \[(?P<iteration>\d+)\] (?:collection=train )?(?!collection=)",
            layout="commas",
            fields={"train/learning_rate": Field("learning_rate"), "train_learning_rate": Field("learning_rate")},
            loss=("loss", "train_loss", "train/loss", "training_loss"),
            reject=r"(?i)(?<![a-z])(?:valid|validation|val|eval|evaluation|test)(?![a-z])",
            standalone=False,
            confidence=0.5,
            example="I0401 10:00:00.123456 140000 logging_writer.py:48] [100] learning_rate=0.1, train_loss=2.3",
        ),
    )
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
            r" directory=(?P<path>\S*?(?<!\d)(?P<iteration>\d{1,18})/?)\s*$",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Jax]
