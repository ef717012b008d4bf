"""MaxText and MaxDiffusion: `completed step: N, seconds: X, TFLOP/s/device: X, Tokens/s/device: X, loss: X`.

Steps count from 0; the seconds of the first ones measure the dispatch only. `total_weights` are target tokens. Since
2026 `lm_loss` stands beside `loss`, the sum of it and the losses of the router and of multi-token prediction.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl


class MaxText(Detector):
    """MaxText and MaxDiffusion, on JAX."""

    name = "maxtext"
    layer = "wrapper"
    bases = ("jax",)
    modules = ("MaxText", "maxtext", "maxdiffusion")
    distributions = ("maxtext",)
    project_keywords = ("maxtext", "maxdiffusion")
    formats = (
        LogFormat(
            name="completed_step",
            words=("completed", "step", "seconds"),
            head=r"\bcompleted step: (?P<iteration>\d+), (?=(?:live slice count|seconds):)",
            layout="commas",
            fields={
                "seconds": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "TFLOP/s": Field("tflops", "compute"),
                "TFLOP/s/device": Field("tflops", "compute"),
                "Tokens/s/device": Field("tokens_per_gpu"),
            },
            loss=("lm_loss", "loss"),
            confidence=0.8,
            example="completed step: 3, seconds: 10.344, TFLOP/s/device: 346.932, Tokens/s/device: 19006.4, loss: 12",
        ),
        LogFormat(
            name="rampup",
            words=("completed", "step", "rampup", "batch", "loss"),
            head=r"\bcompleted step: (?P<iteration>\d+), ",
            layout="commas",
            fields={"seconds": Field("elapsed_time_per_iteration_ms", "time", 1000.0)},
            loss=("lm_loss", "loss"),
            needs=("lm_loss",),
            confidence=0.8,
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saved",
            words=("saved", "a", "checkpoint", "at", "step"),
            pattern=r"\b[sS]aved a checkpoint at step (?P<iteration>\d+)",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("started", "an", "asynchronous", "checkpoint", "save", "step"),
            pattern=r"Started an asynchronous checkpoint save for step (?P<iteration>\d+)",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("restoring", "from", "this", "run", "latest", "step"),
            pattern=r"restoring from this run's directory (?:latest )?step (?P<iteration>\d+)",
        ),
    )
    marks = (
        Mark(words=("metric_logger",), pattern=r"\bmetric_logger\.py:\d+\]", confidence=0.6),
        Mark(words=("max_utils",), pattern=r"\bmax_utils\.py:\d+\]", confidence=0.6),
        Mark(words=("config", "param"), pattern=r"\bConfig param \w+: ", confidence=0.6),
        Mark(words=("memstats", "after"), pattern=r"\bMemstats: After ", confidence=0.6),
        Mark(
            words=("total", "memory", "size", "output", "temp", "argument"),
            pattern=r"Total memory size: [\d.]+ GB, Output size",
            confidence=0.6,
        ),
        Mark(words=("number", "parameters", "billion"), pattern=r"\bnumber parameters: [\d.]+ billion", confidence=0.5),
        Mark(words=("completed", "profiler"), pattern=r"completed profiler (?:de)?activation step", confidence=0.6),
        Mark(words=("eval", "metrics", "after", "step"), pattern=r"eval metrics after step:", confidence=0.5),
        Mark(words=("completed", "eval"), pattern=r"Completed eval (?:step|after train step) \d+", confidence=0.5),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [MaxText]
