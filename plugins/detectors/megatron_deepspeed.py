"""Megatron-DeepSpeed (Microsoft, BigScience, argonne): Megatron's line with tokens, sequence length and TFLOPs.

The loss vanishes when it is not a number, while the nan counter stays 0; overflowed steps count as not skipped.
BigScience's fork prints seconds, not milliseconds.
"""

from __future__ import annotations

from lens_core import Detector, Mark, hookimpl

_SHARED = ("megatron",)


class MegatronDeepSpeed(Detector):
    """Megatron-DeepSpeed."""

    name = "megatron_deepspeed"
    layer = "base"
    bases = ("megatron", "deepspeed")
    config_keys = ("framework=megatron-deepspeed",)
    project_keywords = ("megatron-deepspeed", "megatron_deepspeed")
    marks = (
        Mark(
            words=("iteration", "consumed", "tokens", "tflops"),
            pattern=r"consumed tokens:.*TFLOPs:",
            refines=_SHARED,
            confidence=0.7,
        ),
        Mark(
            words=("iteration", "consumed", "tokens", "samples", "second"),
            pattern=r"consumed tokens:.*samples per second:",
            refines=_SHARED,
            confidence=0.7,
        ),
        Mark(words=("iteration", "tgs"), pattern=r"\(tgs\):", refines=_SHARED, confidence=0.75),
        Mark(
            words=("iteration", "curriculum", "seqlen"), pattern=r"curriculum seqlen:", refines=_SHARED, confidence=0.7
        ),
        Mark(words=("iteration", "lm", "loss"), pattern=r"lm-loss:", refines=_SHARED, confidence=0.65),
        Mark(
            words=("elapsed", "time", "per", "iteration", "s"),
            pattern=r"elapsed time per iteration \(s\):",
            refines=_SHARED,
            confidence=0.65,
        ),
        Mark(words=("info", "training"), pattern=r"\]\[INFO\]\[training[:.]", confidence=0.4),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [MegatronDeepSpeed]
