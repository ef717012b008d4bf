"""Colossal-AI: the 2022 trainer's bar, the rich logger's wrapped lines, the benchmarks' summary."""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl

_THROUGHPUT = {"throughput": Field("samples_per_second"), "throughput(samples/s)": Field("samples_per_second")}


class ColossalAI(Detector):
    """Colossal-AI."""

    name = "colossalai"
    layer = "base"
    modules = ("colossalai",)
    distributions = ("colossalai",)
    project_keywords = ("colossalai", "colossal-ai")
    formats = (
        LogFormat(
            name="bar",
            words=("epoch", "train", "loss"),
            head=r"\[Epoch (?P<epoch>\d+) / Train\]: ?",
            layout="bar",
            fields=_THROUGHPUT,
            needs=("lm_loss",),
            confidence=0.75,
            example="[Epoch 5 / Train]: 100%| | 1/1 [00:00<00:00, 1.2it/s, loss=107, lr=0.00015]",
        ),
        LogFormat(
            name="wrapped",
            words=("loss", "lr", "throughput"),
            head=r"\bLoss = (?P<loss>[-+\d.eE]+|nan|inf) \| LR = (?P<lr>[-+\d.eE]+)"
            r"(?: \| Throughput = (?P<rate>[\d.]+))?",
            fields={"rate": Field("throughput")},
            confidence=0.55,
            example="Loss = 163.55 | LR = 0.00015 | Throughput = 0",
        ),
        LogFormat(
            name="benchmark",
            words=("samples", "throughput", "tflops"),
            head=r"^(?!.*Generate)(?:.*?[\]:] )?(?:Train (?P<samples>\d+) samples, )?"
            r"throughput: (?P<rate>[\d.]+) samples?/s,"
            r" TFLOPS per GPU: (?P<tflops>[\d.]+)",
            fields={"rate": Field("samples_per_second")},
            confidence=0.55,
            example="Train 768 samples, throughput: 448.38 samples/s, TFLOPS per GPU: 82.84",
        ),
    )
    marks = (
        Mark(words=("colossalai", "info"), pattern=r"colossalai - colossalai - INFO", confidence=0.75),
        Mark(words=("generate", "samples", "tflops"), pattern=r"Generate \d+ samples, throughput:", confidence=0.5),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [ColossalAI]
