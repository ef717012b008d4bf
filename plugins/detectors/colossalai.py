"""Colossal-AI: the 2022 trainer's bar, the rich logger's wrapped lines, the benchmarks' summary."""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl

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
            head=r"(?:\[Epoch (?P<epoch>\d{1,9}) / Train\]: )?"
            r"\bLoss = (?P<loss>[-+\d.eE]+|nan|inf) \| LR = (?P<lr>[-+\d.eE]+)"
            r"(?: \| Throughput = (?P<rate>[\d.]+))?",
            fields={"rate": Field("throughput")},
            sums_up_epoch=True,
            confidence=0.55,
            example="Loss = 163.55 | LR = 0.00015 | Throughput = 0",
        ),
        LogFormat(
            name="benchmark",
            words=("samples", "throughput", "tflops"),
            head=r"^(?!.*Generate)(?:.*?[\]:|-] )?"
            r"(?:Train (?P<samples>\d+) samples, |Step time: (?P<step_time>[\d.]+), )?"
            r"throughput: (?P<rate>[\d.]+) samples?/s,"
            r" TFLOPS per GPU: (?P<tflops>[\d.]+)",
            fields={
                "rate": Field("samples_per_second"),
                "step_time": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
            },
            confidence=0.55,
            example="Train 768 samples, throughput: 448.38 samples/s, TFLOPS per GPU: 82.84",
        ),
        LogFormat(
            name="evaluator",
            words=("throughput", "samples", "sec", "tflops", "by", "megatron"),
            head=r"\bThroughput: (?P<rate>[\d.]+) samples/sec, TFLOPS per GPU by Megatron: [\d.]+,"
            r" TFLOPS per GPU: (?P<tflops>[\d.]+)",
            fields={"rate": Field("samples_per_second")},
            confidence=0.55,
            example="Throughput: 12.34 samples/sec, TFLOPS per GPU by Megatron: 123.4, TFLOPS per GPU: 110.1",
        ),
    )
    events = (
        EventPattern(
            type="step_skipped",
            words=("found", "overflow", "skip", "step"),
            pattern=r"Found overflow\. Skip step",
        ),
    )
    marks = (
        Mark(words=("colossalai",), pattern=r"colossalai - colossalai - (?:INFO|WARNING|ERROR)", confidence=0.75),
        Mark(words=("generate", "samples", "tflops"), pattern=r"Generate \d+ samples, throughput:", confidence=0.5),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [ColossalAI]
