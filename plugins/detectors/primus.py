"""Primus (AMD): a wrapper around Megatron, TorchTitan, MaxText and others, with a prefix and memory fields of its own.

Layouts: legacy (`mem usages`), ROCm and HIP memory (2025-08 on), `compute per GPU (...): X (avg Y)` and harmonic means
(26.x); warm-up steps print single values. The line stands on the last rank, on one node in two sinks.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, LogFormat, Mark, hookimpl

_SHARED = ("megatron",)
_TIME_TO_TRAIN = (
    r"(?: \| samples_count: (?P<samples_count>\d{1,18}))?(?: \| duration: (?P<duration_seconds>[\d.]{1,18}) sec)?"
)


class Primus(Detector):
    """AMD's Primus, around Megatron, TorchTitan or MaxText."""

    name = "primus"
    layer = "wrapper"
    bases = ("megatron", "torchtitan", "jax", "maxtext", "megatron_bridge")
    modules = ("primus",)
    distributions = ("primus",)
    environment = ("PRIMUS_CONFIG", "PRIMUS_VERSION", "PRIMUS_BACKEND")
    config_keys = ("primus_config",)
    project_keywords = ("primus",)
    formats = (
        LogFormat(
            name="continued",
            words=("tflop", "gpu", "tokens", "loss"),
            head=r"^\s+(?=TFLOP/s/GPU:\s)",
            layout="pipes",
            loss=("lm_loss",),
            needs=("tflops",),
            joins="previous",
            confidence=0.5,
            example="   TFLOP/s/GPU: 633.7 | tokens per GPU (tokens/s/GPU): 180743.2 | lm loss: 3.3632",
        ),
    )
    events = (
        EventPattern(
            type="training_ended",
            words=("earlystop", "stopping", "training"),
            pattern=r"\[EarlyStop\] Reached target! Stopping training\.(?: eval_loss: (?P<eval_loss>[\d.]+))?",
        ),
        # Behind [EarlyStop] it says nothing new; where the target was not reached it is the only end.
        EventPattern(
            type="training_ended",
            words=("timetotrain", "status", "success"),
            pattern=rf"\[TimeToTrain\] status: (?P<status>success)\b{_TIME_TO_TRAIN}",
            only_running=True,
        ),
        EventPattern(
            type="training_ended",
            words=("timetotrain", "status"),
            pattern=rf"\[TimeToTrain\] status: (?P<status>(?!success|fail|error)\w{{1,40}})\b{_TIME_TO_TRAIN}",
        ),
        EventPattern(
            type="training_failed",
            words=("timetotrain", "status"),
            pattern=rf"\[TimeToTrain\] status: (?P<status>fail\w{{0,40}}|error\w{{0,40}})\b{_TIME_TO_TRAIN}",
        ),
        EventPattern(
            type="training_failed",
            words=("primus", "launcher", "exited", "code"),
            pattern=r"primus launcher exited with code (?P<exit_code>-?[1-9]\d*)",
        ),
        EventPattern(
            type="training_ended",
            words=("primus", "launcher", "exited", "code"),
            pattern=r"primus launcher exited with code 0\b",
        ),
    )
    marks = (
        Mark(words=("hip", "mem"), pattern=r"\bhip (?:max )?mem usage", refines=_SHARED, confidence=0.9),
        Mark(words=("rocm", "mem"), pattern=r"\brocm (?:max )?mem usage", refines=_SHARED, confidence=0.9),
        Mark(words=("max", "mem", "usage", "rank"), pattern=r"rank-\d+ max mem usage", refines=_SHARED, confidence=0.9),
        Mark(words=("inst", "harmonic", "mean"), pattern=r"inst/harmonic mean", refines=_SHARED, confidence=0.9),
        Mark(words=("compute", "per", "gpu"), pattern=r"compute per GPU \(TFLOP", refines=_SHARED, confidence=0.9),
        Mark(
            words=("tokens", "per", "gpu", "iteration"),
            pattern=r"tokens per GPU \(tokens/s/GPU\)",
            refines=_SHARED,
            confidence=0.7,
        ),
        Mark(
            words=("elapsed", "time", "per", "iteration"),
            pattern=r"elapsed time per iteration ?\(ms\): *[\d.]+/[\d.]+",
            refines=_SHARED,
            confidence=0.7,
        ),
        # The console prefix; torchtitan's and MaxText's own lines keep their own names below it.
        Mark(words=("rank",), pattern=r"\[rank-\d+/\d+\] ?\[(?:INFO|DEBUG)", refines=_SHARED, confidence=0.85),
        Mark(words=("primus",), pattern=r"\[Primus:\w+\]", confidence=0.9),
        Mark(words=("primusmaster",), pattern=r"\(PrimusMaster ", refines=_SHARED, confidence=0.9),
        Mark(words=("throughputaverageextension",), pattern=r"ThroughputAverageExtension", confidence=0.9),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Primus]
