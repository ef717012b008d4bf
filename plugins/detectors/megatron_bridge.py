"""Megatron-Bridge: Megatron's line, and before it a line with the step's time and compute but no number."""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl


class MegatronBridge(Detector):
    """Megatron-Bridge (NVIDIA)."""

    name = "megatron_bridge"
    layer = "base"
    bases = ("megatron",)
    distributions = ("megatron-bridge",)
    project_keywords = ("megatron-bridge", "megatron_bridge")
    formats = (
        LogFormat(
            name="step_time",
            words=("step", "time", "gpu", "utilization"),
            head=r"\bStep Time ?: *(?P<seconds>[\d.eE+-]+) ?s\b.*?GPU utilization: *"
            r"(?P<compute>[\d.,eE+-]+ ?(?:MODEL_)?TFLOP/s/GPU)",
            fields={
                "seconds": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "compute": Field("tflops", "compute"),
            },
            joins="next",
            confidence=0.75,
            example="Step Time : 0.79s GPU utilization: 62.4MODEL_TFLOP/s/GPU",
        ),
    )
    marks = (
        Mark(words=("mcore", "default"), pattern=r"\(Mcore default:", confidence=0.75),
        Mark(words=("values", "vs", "mcore"), pattern=r"Non-default values \(vs Mcore", confidence=0.75),
        Mark(words=("iteration", "seq_length"), pattern=r"\| seq_length: *\d+", refines=("megatron",), confidence=0.7),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [MegatronBridge]
