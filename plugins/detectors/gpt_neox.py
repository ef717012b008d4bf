"""GPT-NeoX: Megatron's line with `samples/sec` first, `lm_loss` and the flops in a unit of their own."""

from __future__ import annotations

from lens_core import Detector, EventPattern, Mark, hookimpl


class GptNeoX(Detector):
    """GPT-NeoX (EleutherAI), on Megatron and DeepSpeed."""

    name = "gpt_neox"
    layer = "base"
    bases = ("megatron", "deepspeed")
    modules = ("gpt_neox",)
    project_keywords = ("neox",)
    events = (
        EventPattern(
            type="config",
            words=("train_iters", "updated"),
            pattern=r"\btrain_iters \.+\s*(?P<target_iteration>\d+)\.+updated",
        ),
    )
    marks = (
        Mark(
            words=("iteration", "approx", "flops"),
            pattern=r"approx flops per GPU:",
            refines=("megatron",),
            confidence=0.8,
        ),
        Mark(
            words=("samples", "sec", "iteration"),
            pattern=r"samples/sec: *[\d.]+ *\| *iteration",
            refines=("megatron",),
            confidence=0.8,
        ),
        Mark(
            words=("validation", "results", "at", "iteration"),
            pattern=r"validation results at iteration \d+ \|",
            confidence=0.6,
        ),
        Mark(words=("default",), pattern=r"^(?=\s*\w+ \.{3}).*\.{3}default\s*$", confidence=0.6),
        Mark(words=("updated",), pattern=r"^(?=\s*\w+ \.{3}).*\.{3}updated\s*$", confidence=0.6),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [GptNeoX]
