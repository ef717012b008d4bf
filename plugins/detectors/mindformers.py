"""MindSpore's large models (MindFormers): `{ Epoch:[  1/  2], step:[    1/   19], loss: 10.649, per_step_time: 1752ms`.

Steps count from 1 in each epoch; a throughput of `170.738T` are TFLOP/s of a device.
"""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl


class MindFormers(Detector):
    """MindFormers, on MindSpore."""

    name = "mindformers"
    layer = "wrapper"
    modules = ("mindformers",)
    distributions = ("mindformers",)
    project_keywords = ("mindformers",)
    formats = (
        LogFormat(
            name="step",
            words=("epoch", "step", "loss", "per_step_time"),
            head=r"\{ ?Epoch:\[ *(?P<epoch>\d+)/ *(?P<total_epochs>\d+)\],"
            r" step:\[ *(?P<step_in_epoch>\d+)/ *(?P<steps_per_epoch>\d+)\], ",
            layout="commas",
            fields={
                "per_step_time": Field("elapsed_time_per_iteration_ms", "time"),
                "train_throughput_per_npu": Field("tflops", "compute"),
                "overflow cond": Field("", "text"),
                "global_norm": Field("", "text"),
            },
            needs=("lm_loss",),
            standalone=False,
            epoch_base=1,
            confidence=0.75,
            example="- INFO - { Epoch:[  1/  2], step:[    2/   19], loss: 10.633, per_step_time: 1752ms, lr: 1e-05,"
            " overflow cond: False, loss_scale: 1.0, global_norm: [1 508834], train_throughput_per_npu: 170.738T",
        ),
    )
    marks = (Mark(words=("mindformers",), pattern=r"\[mindformers/", confidence=0.7),)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [MindFormers]
