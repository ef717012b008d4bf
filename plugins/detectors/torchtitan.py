"""torchtitan, 2024 to now: `step:  4  loss:  7.6  grad_norm: 26.6  memory: 66.9GiB(37.5%)  tps: 10,050 ...`.

No target, no learning rate; memory is the peak reserved since the last line. `tps` (older: `wps`) is per device.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl


class TorchTitan(Detector):
    """torchtitan (PyTorch), also under Primus."""

    name = "torchtitan"
    layer = "base"
    modules = ("torchtitan",)
    distributions = ("torchtitan",)
    project_keywords = ("torchtitan",)
    formats = (
        LogFormat(
            name="step",
            words=("step", "loss", "memory"),
            head=r"(?<![\w/.])step: *(?P<iteration>\d+)\s+(?=loss:)",
            layout="spaced",
            fields={
                "memory": Field("mem_usage", "memory"),
                "tps": Field("tokens_per_gpu"),
                "wps": Field("tokens_per_gpu"),
                "global_avg_loss": Field("global_avg_loss"),
            },
            needs=("lm_loss",),
            confidence=0.7,
            example="step: 14  loss:  3.24405  grad_norm:  0.8319  memory:  9.46GiB(64.99%)  tps: 7,282",
        ),
        LogFormat(
            name="step_without_memory",
            words=("step", "loss"),
            head=r"(?<![\w/.])step: *(?P<iteration>\d+) +(?=loss: *[-+\d.a-z]+ {2,}\w+: )",
            layout="spaced",
            fields={"memory": Field("mem_usage", "memory"), "tps": Field("tokens_per_gpu")},
            needs=("lm_loss",),
            confidence=0.5,
        ),
    )
    events = (
        EventPattern(
            type="training_started",
            words=("training", "starts", "at", "step"),
            pattern=r"Training starts at step (?P<iteration>\d+)(?:,.*total steps (?P<target_iteration>\d+))?",
        ),
        EventPattern(
            type="config",
            words=("trainer", "is", "initialized", "total", "steps"),
            pattern=r"Trainer is initialized with .{0,200}?global batch size (?P<global_batch_size>\d+),"
            r".*total steps (?P<target_iteration>\d+)",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "the", "checkpoint"),
            pattern=r"Saving the checkpoint(?: \(or staging if async is enabled\))?\.",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "checkpoint", "last", "step"),
            pattern=r"Saving a (?:(?:full|model)[\w -]{0,40} )?checkpoint .{0,120}last step, step (?P<iteration>\d+)",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("info", "saving", "a", "checkpoint", "at", "step"),
            pattern=r"- INFO - Saving a checkpoint at step (?P<iteration>\d+)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("finished", "saving", "the", "checkpoint"),
            pattern=r"Finished saving the checkpoint .*in (?P<duration_seconds>[\d.]+) seconds",
        ),
        EventPattern(  # the step stands in the line before the load alone
            type="checkpoint_loaded",
            words=("loading", "the", "checkpoint", "from"),
            pattern=r"Loading the checkpoint from (?P<path>\S*?step-(?P<iteration>\d+))",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("finished", "loading", "the", "checkpoint"),
            pattern=r"Finished loading the checkpoint .*in (?P<duration_seconds>[\d.]+) seconds",
        ),
        EventPattern(
            type="training_ended",
            words=("training", "completed"),
            pattern=r"(?:INFO|\])[ -]{0,8}Training completed\s{0,80}$",
        ),
        EventPattern(
            type="training_ended",
            words=("process", "group", "destroyed"),
            pattern=r"(?:INFO|\])[ -]{0,8}Process group destroyed",
        ),
    )
    marks = (
        Mark(words=("titan",), pattern=r"\[titan\] ", confidence=0.8),
        Mark(words=("torchtitan",), pattern=r"- torchtitan\.[\w.]+ - ", confidence=0.8),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [TorchTitan]
