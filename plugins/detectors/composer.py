"""MosaicML's Composer and LLM Foundry: a block of lines for a step, `[batch=1/100]:` and below it one number a line.

The banner makes the step's row; what stands below joins it. `[epoch=1][batch=5/5]:` counts from 1 in each epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Detector, Field, LogFormat, hookimpl


def _below(name: str, words: Sequence[str], label: str, stored: Field) -> LogFormat:
    """One labelled number below the banner."""
    return LogFormat(
        name=name,
        words=("train", *words),
        head=rf"(?:^|\s)Train {label}: +(?P<value>[-+\w.]+)\s*$",
        fields={"value": stored},
        loss=(),
        joins="previous",
        confidence=0.5,
    )


class Composer(Detector):
    """Composer, on which LLM Foundry trains."""

    name = "composer"
    layer = "wrapper"
    modules = ("composer", "llmfoundry")
    distributions = ("mosaicml", "llm-foundry")
    project_keywords = ("llm-foundry", "mosaicml")
    formats = (
        LogFormat(
            name="batch",
            words=("batch",),
            head=r"\[batch=(?P<iteration>\d+)/(?P<target_iteration>\d+)\]:",
            is_alone=True,
            confidence=0.5,
            example="[batch=12/500]:",
        ),
        LogFormat(
            name="epoch_and_batch",
            words=("epoch", "batch"),
            head=r"\[epoch=(?P<epoch>\d+)\]\[batch=(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+)\]:",
            is_alone=True,
            epoch_base=1,
            confidence=0.5,
            example="[epoch=1][batch=5/5]:",
        ),
        _below("loss", ("loss", "total"), "loss/train/total", Field("lm_loss")),
        _below(
            "cross_entropy",
            ("languagecrossentropy",),
            r"(?:metrics/train/)?LanguageCrossEntropy",
            Field("LanguageCrossEntropy"),
        ),
        _below("tokens", ("throughput", "tokens_per_sec"), "throughput/device/tokens_per_sec", Field("tokens_per_gpu")),
        _below("mfu", ("throughput", "mfu"), "throughput/device/mfu", Field("mfu", "percent")),
        _below("rate", ("lr", "group"), r"lr-\w+/group0", Field("learning_rate", "rounded")),
        _below("memory", ("memory", "peak_reserved_mem"), "memory/peak_reserved_mem", Field("mem_usage", "memory")),
        _below("norm", ("_norm", "grad", "global"), "l2_norm/grad/global", Field("grad_norm")),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Composer]
