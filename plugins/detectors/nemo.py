"""NeMo 1.x (Lightning's bar with keys of its own) and 2.x (`Training epoch E, iteration i/T | ...`).

In the 2.x line the iteration starts again in each epoch and T is the last one's number; `global_step` is the step.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl

_LOSS = ("reduced_train_loss", "train_loss", "loss")
_FIELDS = {
    "global_step": Field("iteration"),
    "max_memory_reserved": Field("mem_reserved", "memory", 1 / 2**30),
    "max_memory_allocated": Field("mem_usage", "memory", 1 / 2**30),
    "throughput": Field("samples_per_second"),
}


class NeMo(Detector):
    """NVIDIA NeMo, around Lightning and Megatron."""

    name = "nemo"
    layer = "wrapper"
    bases = ("megatron", "lightning")
    modules = ("nemo",)
    distributions = ("nemo-toolkit",)
    environment = ("NEMO_TESTING", "NEMO_CACHE_DIR")
    project_keywords = ("nemo",)
    formats = (
        LogFormat(
            name="printer",
            words=("training", "epoch", "iteration", "global_step"),
            head=r"\bTraining epoch (?P<epoch>\d+), iteration (?P<step_in_epoch>\d+)/(?P<last_of_epoch>\d+) *\|",
            layout="pipes",
            fields={**_FIELDS, "last_of_epoch": Field("target_iteration")},
            loss=_LOSS,
            confidence=0.8,
            example="Training epoch 0, iteration 9/19 | lr: 1.4e-06 | global_step: 9 | reduced_train_loss: 11.03",
        ),
        LogFormat(
            name="printer_first",
            words=("training", "epoch", "iteration", "lr"),
            head=r"\bTraining epoch (?P<epoch>\d+), iteration (?P<iteration>\d+)/(?P<last_of_epoch>\d+) *\|",
            layout="pipes",
            fields={**_FIELDS, "last_of_epoch": Field("target_iteration")},
            loss=_LOSS,
            confidence=0.8,
        ),
        LogFormat(
            name="bar",
            words=("epoch", "reduced_train_loss"),
            head=r"\bEpoch (?P<epoch>\d+):(?: ?:)? ?",
            layout="bar",
            fields=_FIELDS,
            loss=_LOSS,
            needs=("lm_loss",),
            confidence=0.8,
            example="Epoch 0: :  1%| | 7/15 [06:19<07:13, reduced_train_loss=11.50, global_step=5.000]",
        ),
        LogFormat(
            name="bar_global_step",
            words=("epoch", "global_step", "consumed_samples"),
            head=r"\bEpoch (?P<epoch>\d+):(?: ?:)? ?",
            layout="bar",
            fields=_FIELDS,
            loss=_LOSS,
            needs=("lm_loss", "consumed_samples"),
            confidence=0.75,
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("scheduled", "async", "checkpoint", "save"),
            pattern=r"Scheduled async checkpoint save for (?P<path>\S+)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("global", "checkpoint", "save", "rank", "duration"),
            pattern=r"Global Checkpoint Save : Rank ?: ?\d+ : Iteration ?: ?(?P<iteration>\d+) :.*"
            r"Save duration ?: ?(?P<duration_seconds>[\d.]+)s",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("global", "checkpoint", "load", "rank", "spent"),
            pattern=r"Global Checkpoint Load : Rank ?: ?\d+ :.*"
            r"Time spent in load_?\w* ?: ?(?P<duration_seconds>[\d.]+)s",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("async", "checkpoint", "save", "finalized"),
            pattern=r"Async checkpoint save for step (?P<iteration>\d+) \((?P<path>[^)]+)\) finalized successfully",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("nemo", "successfully", "saved", "checkpoint", "iteration"),
            pattern=r"NeMo .*Successfully saved checkpoint from iteration\s+(?P<iteration>\d+)(?: to (?P<path>\S+))?",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("successfully", "saved", "checkpoint", "iteration"),
            pattern=r"Successfully saved checkpoint from iteration\s+(?P<iteration>\d+)(?: to (?P<path>\S+))?",
            confidence=0.4,
        ),
    )
    marks = (
        Mark(words=("nemo",), pattern=r"\[NeMo [IWE] ", refines=("lightning", "megatron"), confidence=0.8),
        *(
            Mark(words=("nemo", word), pattern=rf"\bnemo[./]{word}\b", confidence=0.6)
            for word in ("collections", "lightning", "core", "utils")
        ),
        Mark(
            words=("validation", "iteration"), pattern=r"^(?:.*\]:?)?\s*Validation: iteration \d+/\d+", confidence=0.5
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [NeMo]
