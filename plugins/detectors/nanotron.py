"""nanotron: `iteration: N / M | key: value | ...` with human-readable numbers (85.8G, 11.5K)."""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl


class Nanotron(Detector):
    """nanotron (Hugging Face)."""

    name = "nanotron"
    layer = "base"
    modules = ("nanotron",)
    distributions = ("nanotron",)
    project_keywords = ("nanotron",)
    formats = (
        LogFormat(
            name="iteration",
            words=("iteration", "lm_loss"),
            head=r"\biteration: (?P<iteration>\d+) / (?P<target_iteration>\d+) \|",
            layout="pipes",
            fields={"tokens_per_sec": Field("tokens_per_second"), "hardware_tflops_per_gpu": Field("hardware_tflops")},
            loss=("lm_loss",),
            confidence=0.8,
            example="iteration: 5 / 10 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | lm_loss: 2.38",
        ),
    )
    marks = (
        Mark(
            words=("info", "dp", "pp", "tp"),
            pattern=r"\[INFO\|DP=\d+\|PP=\d+\|TP=\d+",
            refines=("megatron",),
            confidence=0.85,
        ),
        Mark(
            words=("hardware_tflops_per_gpu",),
            pattern=r"\bhardware_tflops_per_gpu: ",
            refines=("megatron",),
            confidence=0.7,
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Nanotron]
