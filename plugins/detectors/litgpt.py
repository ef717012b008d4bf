"""LitGPT: `Epoch 1 | iter 2 step 1 | loss train: 1.660, val: n/a | iter time: 548.72 ms (step)`; the step counts."""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl


class LitGpt(Detector):
    """LitGPT (Lightning AI)."""

    name = "litgpt"
    layer = "wrapper"
    bases = ("lightning",)
    modules = ("litgpt", "lit_gpt")
    distributions = ("litgpt",)
    project_keywords = ("litgpt", "lit-gpt")
    formats = (
        LogFormat(
            name="step",
            words=("epoch", "iter", "step", "loss", "train"),
            head=r"\bEpoch (?P<epoch>\d+) \| iter (?P<micro_iteration>\d+) step (?P<iteration>\d+) \|"
            r" loss train: (?P<loss>[-+\d.eE]+|nan|inf),(?: val: \S+)? \|",
            layout="pipes",
            fields={"iter_time": Field("elapsed_time_per_iteration_ms", "time")},
            epoch_base=1,
            confidence=0.75,
            example="Epoch 1 | iter 2 step 1 | loss train: 1.660, val: n/a | iter time: 548.72 ms (step)",
        ),
        LogFormat(
            name="old",
            words=("iter", "step", "loss", "time"),
            head=r"\biter (?P<micro_iteration>\d+) (?:\| )?step (?P<iteration>\d+): loss (?P<loss>[-+\d.eE]+|nan|inf),"
            r" iter time: (?P<time>[\d.]+ ?m?s)",
            fields={"time": Field("elapsed_time_per_iteration_ms", "time")},
            confidence=0.65,
            example="iter 2 step 1: loss 1.6600, iter time: 548.72ms (optimizer.step)",
        ),
        LogFormat(
            name="lit_llama",
            words=("iter", "loss", "time", "speed", "toks"),
            head=r"\biter (?P<iteration>\d+): loss (?P<loss>[-+\d.eE]+|nan|inf), time: (?P<time>[\d.]+ ?m?s),"
            r" speed: (?P<speed>[\d.]+) toks/s/device",
            fields={
                "time": Field("elapsed_time_per_iteration_ms", "time"),
                "speed": Field("tokens_per_gpu"),
            },
            confidence=0.65,
            example="iter 12: loss 10.9000, time: 123.45ms, speed: 16590 toks/s/device",
        ),
    )
    events = (
        EventPattern(
            type="training_ended",
            words=("training", "time", "s"),
            pattern=r"^(?:\| - )?Training [tT]ime ?: (?P<duration_seconds>[\d.]+) ?s\s*$",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "to"),
            pattern=r"^Saving (?:checkpoint|LoRA weights|adapter weights|bias weights) to ['\"]?(?P<path>[^'\"\s]+)",
        ),
    )
    marks = (
        Mark(
            words=("iter", "val", "loss", "time", "ms"),
            pattern=r"\biter \d+: val loss [\d.]+, val time",
            confidence=0.6,
        ),
        Mark(words=("litgpt",), pattern=r"\blitgpt[./]", confidence=0.6),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [LitGpt]
