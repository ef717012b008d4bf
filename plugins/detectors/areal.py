"""AReaL: `Epoch 1/10 Step 12/116 Train step 12/1160 done.` and a table of all statistics below it.

The line tells how far the training is; the table's boxes are not read.
"""

from __future__ import annotations

from lens_core import Detector, LogFormat, Mark, hookimpl


class Areal(Detector):
    """AReaL, asynchronous reinforcement learning."""

    name = "areal"
    layer = "wrapper"
    bases = ("megatron", "transformers")
    modules = ("areal",)
    distributions = ("areal",)
    project_keywords = ("areal",)
    formats = (
        LogFormat(
            name="step",
            words=("epoch", "step", "train", "done"),
            head=r"\bEpoch (?P<epoch>\d+)/(?P<total_epochs>\d+) Step \d+/(?P<steps_per_epoch>\d+)"
            r" Train step (?P<iteration>\d+)/(?P<target_iteration>\d+) done\.",
            confidence=0.7,
            example="StatsLogger INFO: Epoch 1/10 Step 12/116 Train step 12/1160 done.",
        ),
    )
    marks = (Mark(words=("statslogger", "info"), pattern=r"\bStatsLogger INFO:", confidence=0.6),)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Areal]
