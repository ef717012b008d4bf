"""verl (and EasyR1): `step:34 - key:value - key:value ...`, 30 to 120 keys, after Ray's prefix.

Early versions print three decimals, so a learning rate of 0.000 says nothing, and `actor/lr(1e-4)` in units of 1e-4.
A record of a validation before training has no `actor/` key. `critic/grad_norm` is another model's.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl


class Verl(Detector):
    """verl, reinforcement learning on Ray."""

    name = "verl"
    layer = "wrapper"
    bases = ("megatron", "transformers", "torchtitan")
    modules = ("verl",)
    distributions = ("verl",)
    project_keywords = ("verl",)
    formats = (
        LogFormat(
            name="step",
            words=("step", "actor"),
            head=r"(?<![\w/.])step:(?P<iteration>\d+) - (?=[\w/]+)",
            layout="dashes",
            fields={
                "training/global_step": Field("iteration"),
                "actor/grad_norm": Field("grad_norm"),
                "actor/lr": Field("learning_rate", "rounded"),
                "actor/lr(1e-4)": Field("learning_rate", "rounded", 1e-4),
                "timing_s/step": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "perf/time_per_step": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "perf/throughput": Field("tokens_per_gpu"),
                "perf/max_memory_allocated_gb": Field("mem_usage", "memory"),
                "actor/perf/max_memory_allocated_gb": Field("mem_usage", "memory"),
                "perf/max_memory_reserved_gb": Field("mem_reserved", "memory"),
                "training/epoch": Field("epoch"),
            },
            loss=("actor/loss",),
            confidence=0.8,
            example="(TaskRunner pid=16292) step:2 - actor/pg_loss:0.001 - actor/grad_norm:0.069",
        ),
        LogFormat(
            name="supervised",
            words=("step", "train", "loss"),
            head=r"(?<![\w/.])step:(?P<iteration>\d+) - (?=train/loss:)",
            layout="dashes",
            fields={
                "train/lr": Field("learning_rate"),
                "train/lr(1e-3)": Field("learning_rate", "rounded", 1e-3),
                "train/grad_norm": Field("grad_norm"),
                "train/time(s)": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
            },
            loss=("train/loss",),
            needs=("lm_loss",),
            confidence=0.75,
            example="step:10 - train/loss:1.234 - train/lr(1e-3):0.01",
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("local_global_step_folder",),
            pattern=r"\blocal_global_step_folder: (?P<path>\S*?global_step_(?P<iteration>\d+))",
        ),
        EventPattern(  # of every rank, so without its path
            type="checkpoint_saved",
            words=("saved", "model", "to", "global_step_"),
            pattern=r"Saved model to \S*?global_step_(?P<iteration>\d+)/",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("load", "from", "checkpoint", "folder"),
            pattern=r"Load from checkpoint folder: (?P<path>\S*?global_step_(?P<iteration>\d+))",
        ),
        EventPattern(type="training_ended", words=("training", "progress"), pattern=r"Training Progress: +100%\|"),
        EventPattern(
            type="training_ended",
            words=("final", "validation", "metrics"),
            pattern=r"\bFinal validation metrics:",
        ),
    )
    marks = (
        Mark(words=("taskrunner", "pid"), pattern=r"\(TaskRunner pid=\d+", confidence=0.6),
        Mark(words=("workerdict", "pid"), pattern=r"\(WorkerDict pid=\d+", confidence=0.55),
        Mark(words=("step", "val"), pattern=r"\bstep:\d+ - val", confidence=0.6),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Verl]
