"""PaddlePaddle and its kits (PaddleNLP, PaddleFleetX, PaddleOCR): all say what a batch cost, each in its own order.

`ips` is what one card reads per second: tokens where language models are trained, else samples.
"""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, hookimpl

_COSTS = {
    "batch_cost": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
    "avg_batch_cost": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
    "avg_reader_cost": Field("data_loading_time_ms", "time", 1000.0),
    "max_mem_allocated": Field("mem_usage", "memory"),
    "max_mem_reserved": Field("mem_reserved", "memory"),
}
_OF_TOKENS = {**_COSTS, "ips": Field("tokens_per_gpu"), "ips_total": Field("tokens_per_second")}


class Paddle(Detector):
    """PaddlePaddle's kits."""

    name = "paddle"
    layer = "base"
    modules = ("paddle",)
    distributions = ("paddlepaddle", "paddlepaddle-gpu")
    project_keywords = ("paddle",)
    formats = (
        LogFormat(
            name="nlp",
            words=("loss", "learning_rate", "global_step", "interval_runtime"),
            head=r"(?:^|[\s-])(?=loss: [-+\d.]+, learning_rate: )",
            layout="commas",
            fields={
                "global_step": Field("iteration"),
                "interval_samples_per_second": Field("samples_per_second"),
                "interval_tokens_per_second_per_device": Field("tokens_per_gpu"),
                "progress_or_epoch": Field("epoch"),
            },
            needs=("lm_loss",),
            standalone=False,
            example="loss: 1.2, learning_rate: 1e-05, global_step: 10, interval_runtime: 1.2, progress_or_epoch: 0.1",
        ),
        LogFormat(
            name="fleet",
            words=("train", "epoch", "batch", "loss", "avg_batch_cost"),
            head=r"\[train\] epoch: (?P<epoch>\d+), batch: (?P<step_in_epoch>\d+), ",
            layout="commas",
            fields=_OF_TOKENS,
            needs=("lm_loss",),
            example="[train] epoch: 0, batch: 1, loss: 11.000, avg_batch_cost: 0.71029 sec, speed: 1.41 step/s,"
            " ips_total: 92267 tokens/s, ips: 11533 tokens/s, learning rate: 5.55556e-08",
        ),
        LogFormat(
            name="global_step",
            words=("global", "step", "epoch", "batch", "loss", "avg_batch_cost"),
            head=r"\bglobal step:? (?P<iteration>\d+), epoch: (?P<epoch>\d+), batch: (?P<step_in_epoch>\d+), ",
            layout="commas",
            fields=_OF_TOKENS,
            needs=("lm_loss",),
            example="global step 10, epoch: 0, batch: 9, loss: 10.99, avg_batch_cost: 0.71 sec, speed: 1.41 step/s",
        ),
        LogFormat(
            name="ocr",
            words=("epoch", "global_step", "lr", "avg_batch_cost", "ips"),
            head=r"\bepoch: \[(?P<epoch>\d+)/(?P<total_epochs>\d+)\], (?=global_step: )",
            layout="commas",
            fields={**_COSTS, "global_step": Field("iteration"), "ips": Field("samples_per_second")},
            example="epoch: [3/40], global_step: 900, lr: 0.00050, loss: 0.74, avg_reader_cost: 0.001 s,"
            " avg_batch_cost: 0.012 s, ips: 268.31 samples/s, eta: 0:12:03, max_mem_allocated: 4011 MB",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Paddle]
