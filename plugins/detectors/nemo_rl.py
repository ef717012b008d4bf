"""NeMo-RL: a step is a block of lines, `===== Step 2/100 =====` and below it one number a line.

The banner makes the step's row; what stands below joins it.
"""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"


def _below(name: str, label: str, stored: str | Field, unit: str = "") -> LogFormat:
    """One labelled number below the banner."""
    return LogFormat(
        name=name,
        words=[word for word in label.lower().split() if word.isalpha()],
        head=rf"• {label}: (?P<value>{_NUMBER}){unit}\s*(?:\(|$)",
        fields={"value": stored if isinstance(stored, Field) else Field(stored)},
        loss=(),
        joins="previous",
        confidence=0.3,
    )


class NemoRl(Detector):
    """NeMo-RL (NVIDIA), reinforcement learning on Ray."""

    name = "nemo_rl"
    layer = "wrapper"
    bases = ("megatron", "transformers")
    modules = ("nemo_rl",)
    distributions = ("nemo-rl",)
    project_keywords = ("nemo-rl", "nemo_rl")
    formats = (
        LogFormat(
            name="banner",
            words=("step",),
            head=r"===== Step (?P<iteration>\d+)/(?P<target_iteration>\d+) =====",
            standalone=False,
            is_alone=True,
            confidence=0.6,
            example="========================= Step 2/100 =========================",
        ),
        _below("loss", "Loss", "lm_loss"),
        _below("reward", "Avg Reward", "reward"),
        _below("length", "Mean Generation Length", "response_length"),
        _below("step_time", "Total step time", Field("elapsed_time_per_iteration_ms", "time", 1000.0), "s"),
    )
    marks = (
        Mark(words=("training", "results"), pattern=r"^\S* ?Training Results:\s*$", confidence=0.5),
        Mark(words=("nemo_rl",), pattern=r"\bnemo_rl\b", confidence=0.7),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [NemoRl]
