"""OLMo and OLMo-core (Ai2): a block of lines for a step, `[step=1/739328,epoch=0]` and below it one `key=value` a line.

The banner makes the step's row; what stands below joins it. Numbers have thousands separators.
"""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl

_STEP = r"\[step=(?P<iteration>[\d,]{1,20})/(?P<target_iteration>[\d,]{1,20})(?: [^\]]{0,200}|[^\]\d,][^\]]{0,200})?\]"
_NUMBER = r"[-+\w.,]+%?"


def _banner(name: str, module: str, example: str) -> LogFormat:
    return LogFormat(name=name, words=(module, "step"), head=_STEP, standalone=False, confidence=0.75, example=example)


def _below(name: str, words: Sequence[str], label: str, stored: Field) -> LogFormat:
    """One number below the banner."""
    return LogFormat(
        name=name,
        words=words,
        head=rf"^\s*{label}=(?P<value>{_NUMBER})\s*$",
        fields={"value": stored},
        loss=(),
        joins="previous",
        confidence=0.5,
    )


class Olmo(Detector):
    """OLMo's trainers, the first and OLMo-core."""

    name = "olmo"
    layer = "base"
    modules = ("olmo", "olmo_core")
    distributions = ("ai2-olmo", "ai2-olmo-core")
    project_keywords = ("olmo",)
    formats = (
        _banner("step", "olmo", "[2024-04-17 09:42:26] INFO     [olmo.train:816, rank=0] [step=1/739328]"),
        _banner(
            "core_step",
            "olmo_core",
            "2026-08-08 12:01:00 INFO [olmo_core.train.callbacks.console_logger:68] [step=100/2000,epoch=0,eta=5h11m]",
        ),
        _below("loss", ("train", "crossentropyloss"), "train/CrossEntropyLoss", Field("lm_loss")),
        _below("core_loss", ("train", "ce", "loss"), "train/CE loss", Field("lm_loss")),
        _below("perplexity", ("train", "perplexity"), "train/Perplexity", Field("perplexity")),
        _below("core_perplexity", ("train", "ppl"), "train/PPL", Field("perplexity")),
        _below("tokens", ("throughput", "total_tokens"), "throughput/total_tokens", Field("consumed_tokens")),
        _below(
            "tokens_per_second",
            ("throughput", "device", "tokens_per_second"),
            "throughput/device/tokens_per_second",
            Field("tokens_per_gpu"),
        ),
        _below("tps", ("throughput", "device", "tps"), "throughput/device/TPS", Field("tokens_per_gpu")),
        _below("norm", ("optim", "total", "grad", "norm"), "optim/total grad norm", Field("grad_norm")),
        _below(
            "memory",
            ("system", "peak", "gpu", "memory", "mb"),
            r"System/Peak GPU Memory \(MB\)",
            Field("mem_usage", "memory", 1 / 1024),
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("olmo_core", "saving", "checkpoint", "for", "step", "to"),
            pattern=r"Saving checkpoint for step (?P<iteration>\d+) to '(?P<path>[^']+)'",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("olmo_core", "checkpoint", "for", "step", "saved", "successfully"),
            pattern=r"Checkpoint for step (?P<iteration>\d+) saved successfully",
        ),
        EventPattern(
            type="config",
            words=("olmo_core", "training", "for", "steps"),
            pattern=r"Training for (?P<target_iteration>[\d,]+) steps",
        ),
    )
    marks = (
        Mark(words=("olmo_core",), pattern=r"\bolmo_core\.\w+", confidence=0.7),
        Mark(words=("olmo",), pattern=r"\[olmo\.\w+", confidence=0.7),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Olmo]
