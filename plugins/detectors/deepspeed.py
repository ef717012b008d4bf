"""DeepSpeed's engine, in all its generations, its pipeline engine, and DeepSpeed-Chat.

The learning-rate line and the timer's line are halves of one step; both name it. `skipped` is a running total.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl

_TIMER = {
    "RunningAvgSamplesPerSec": Field("samples_per_second_avg"),
    "CurrSamplesPerSec": Field("samples_per_second"),
    "SamplesPerSec": Field("samples_per_second"),
    "MemAllocated": Field("mem_usage", "memory"),
    "MaxMemAllocated": Field("mem_max", "memory"),
}
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf)"


class DeepSpeed(Detector):
    """DeepSpeed (Microsoft), alone or below a trainer."""

    name = "deepspeed"
    layer = "base"
    modules = ("deepspeed",)
    distributions = ("deepspeed",)
    environment = ("DEEPSPEED_CONFIG", "DS_CONFIG", "DEEPSPEED_VERSION")
    config_keys = ("deepspeed_config", "deepspeed")
    project_keywords = ("deepspeed",)
    formats = (
        LogFormat(
            name="learning_rate",
            words=("step", "skipped", "lr"),
            head=rf"\bstep=(?P<iteration>\d+), *skipped=(?P<skipped>\d+), *lr=\[(?P<lr>{_NUMBER})",
            fields={"skipped": Field("skipped_iterations_number")},
            confidence=0.6,
            example="[Rank 0] step=10, skipped=6, lr=[9.6e-06, 9.6e-06], mom=[(0.9, 0.95)]",
        ),
        LogFormat(
            name="timer",
            words=("global_step", "runningavgsamplespersec"),
            head=r"\b(?:epoch=(?P<epoch>\d+)/)?(?:micro_step=(?P<micro_step>\d+)/)?global_step=(?P<iteration>\d+), ",
            layout="commas",
            fields=_TIMER,
            confidence=0.6,
            example="epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=173.4, CurrSamplesPerSec=171.9",
        ),
        LogFormat(
            name="timer_old",
            words=("samplespersec",),
            head=r"(?<![\d/])(?P<epoch>\d+)/(?P<step_in_epoch>\d+), (?=(?:Running|Curr|Samples))",
            layout="commas",
            fields=_TIMER,
            needs=("samples_per_second",),
            confidence=0.6,
            example="[INFO 2020-06-08 05:26:19] 0/2650, SamplesPerSec=13.19",
        ),
        LogFormat(
            name="timer_running",
            words=("runningavgsamplespersec", "currsamplespersec"),
            head=r"(?<![\d/=])(?P<epoch>\d+)/(?P<step_in_epoch>\d+), (?=Running)",
            layout="commas",
            fields=_TIMER,
            confidence=0.6,
        ),
        LogFormat(
            name="pipeline",
            words=("steps", "loss", "iter", "time"),
            head=rf"\bsteps: (?P<iteration>\d+) loss: (?P<loss>{_NUMBER}) .{{0,80}}?iter time"
            rf" \(s\): (?P<seconds>{_NUMBER})(?: samples/sec: (?P<samples>{_NUMBER}))?",
            fields={
                "seconds": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "samples": Field("samples_per_second"),
            },
            confidence=0.6,
            example="steps: 2498 loss: 12.6747 iter time (s): 1.206 samples/sec: 26.538",
        ),
        LogFormat(
            name="chat_ppo",
            words=("epoch", "step", "ppo_ep"),
            head=r"(?i:\bepoch): *(?P<epoch>\d+) *\| *(?i:step): *(?P<iteration>\d+) *\|",
            layout="pipes",
            loss=(),
            confidence=0.6,
            example="epoch: 0|step: 3184|ppo_ep: 1|act_loss: 0.1|cri_loss: 0.2|unsuper_loss: 0.0",
        ),
        LogFormat(
            name="chat_ppo_spelled",
            words=("epoch", "step", "ppo", "actor", "critic"),
            head=r"\bEpoch: *(?P<epoch>\d+) *\| *Step: *(?P<iteration>\d+) *\|",
            layout="pipes",
            fields={"Actor Loss": Field("act_loss"), "Critic Loss": Field("cri_loss")},
            loss=(),
            confidence=0.6,
            example="Epoch: 0 | Step: 5 | PPO Epoch: 1 | Actor Loss: 0.1 | Critic Loss: 0.2 | Unsupervised Loss: 0.0",
        ),
        LogFormat(
            name="chat_loss",
            words=("epoch", "step", "rank", "loss"),
            head=rf"\bEpoch: (?P<epoch>\d+), Step: (?P<step_in_epoch>\d+), Rank: \d+, loss = (?P<loss>{_NUMBER})",
            confidence=0.5,
            example="Epoch: 0, Step: 10, Rank: 0, loss = 2.1234",
        ),
        LogFormat(
            name="chat_speed",
            words=("model", "parameters", "latency", "tflops"),
            head=rf"\bModel Parameters: *[\d.]+ *B, *Latency: *(?P<latency>{_NUMBER}s), *TFLOPs: *(?P<tflops>{_NUMBER})"
            rf"(?:, *Samples/sec: *(?P<samples>{_NUMBER}))?(?:.*?Batch Size: *(?P<batch>\d+))?",
            fields={
                "latency": Field("elapsed_time_per_iteration_ms", "time", 1000.0),
                "samples": Field("samples_per_second"),
                "batch": Field("global_batch_size"),
            },
            joins="previous",
            confidence=0.5,
        ),
    )
    events = (
        EventPattern(
            type="step_skipped",
            words=("overflow", "skipping", "step"),
            pattern=r"(?:OVERFLOW!|Overflow detected\.)[^S]{0,80}Skipping step\."
            r"(?: Attempted loss scale: (?P<attempted>[\d.e+]+),"
            r" reducing to (?P<loss_scale>[\d.e+-]+))",
        ),
        EventPattern(
            type="step_skipped",
            words=("overflow", "skipping", "step"),
            pattern=r"(?:OVERFLOW!|Overflow detected\.)[^S]{0,80}Skipping step\."
            r"(?: Attempted loss scale: (?P<loss_scale>[\d.e+]+))?",
        ),
        EventPattern(
            type="step_skipped",
            words=("dynamic", "loss", "scale", "overflow", "skipping"),
            pattern=r"dynamic loss scale overflow!.*?Skipping step\. Attempted loss scale: (?P<attempted>[\d.e+]+),"
            r" reducing to (?P<loss_scale>[\d.e+-]+)",
        ),
        EventPattern(
            type="step_skipped",
            words=("grad", "overflow", "on", "iteration"),
            pattern=r"\bGrad overflow on iteration:? (?P<iteration>\d+)",
        ),
        EventPattern(
            type="training_failed",
            words=("loss", "scale", "already", "at", "minimum"),
            pattern=r"(?P<reason>Current loss scale already at minimum[^.]*)",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("checkpoint", "is", "about", "to", "be", "saved"),
            pattern=r"Checkpoint (?:global_step)?(?P<iteration>\d+) is about to be saved",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("checkpoint", "is", "begin", "to", "save"),
            pattern=r"Checkpoint (?:global_step)?(?P<iteration>\d+) is begin to save",
        ),
        # Per shard, so without their paths: one event for all.
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "model", "checkpoint", "global_step"),
            pattern=r"Saving model checkpoint: \S*?global_step(?P<iteration>\d+)/",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("torch", "saving", "global_step"),
            pattern=r"\[Torch\] Saving \S*?global_step(?P<iteration>\d+)/",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("torch", "saved", "global_step"),
            pattern=r"\[Torch\] Saved \S*?global_step(?P<iteration>\d+)/",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("zero", "checkpoint", "saved", "global_step"),
            pattern=r"zero checkpoint saved \S*?global_step(?P<iteration>\d+)/",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("torch", "loaded", "checkpoint", "global_step"),
            pattern=r"\[Torch\] Loaded checkpoint from \S*?global_step(?P<iteration>\d+)/",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("checkpoint", "is", "ready", "now"),
            pattern=r"Checkpoint (?:global_step)?(?P<iteration>\d+) is ready now",
        ),
        EventPattern(
            type="training_failed",
            words=("exits", "with", "return", "code"),
            pattern=r"(?:Process \d{1,9}|\]) exits with return code = (?P<exit_code>-?[1-9]\d{0,9})",
        ),
        EventPattern(
            type="training_ended",
            words=("process", "exits", "successfully"),
            pattern=r"Process \d+ exits successfully",
        ),
        EventPattern(
            type="epoch_started",
            words=("beginning", "of", "epoch", "micro", "batches"),
            pattern=r"Beginning of Epoch (?P<epoch>\d+)/(?P<total_epochs>\d+),"
            r" Total Micro Batches (?P<steps_per_epoch>\d+)",
        ),
    )
    marks = (
        Mark(words=("log_dist",), pattern=r":log_dist\]", confidence=0.5),
        # The format of its logger: time, level, file, line and function.
        Mark(words=("info", "py"), pattern=r"\] \[INFO\] \[\w+\.py:\d+:\w+\]", confidence=0.5),
        Mark(words=("warning", "py"), pattern=r"\] \[WARNING\] \[\w+\.py:\d+:\w+\]", confidence=0.5),
        Mark(words=("error", "py"), pattern=r"\] \[ERROR\] \[\w+\.py:\d+:\w+\]", confidence=0.5),
        Mark(words=("rank", "time", "ms"), pattern=r"\brank=\d+ time \(ms\) \|", confidence=0.5),
        Mark(words=("evaluating", "reward"), pattern=r"\*{5} Evaluating reward, Epoch", confidence=0.4),
        Mark(words=("latency", "training", "tflops"), pattern=r"^Training +=> Latency:", confidence=0.4),
        Mark(words=("generation", "latency", "per", "token"), pattern=r"^Generation +=> Latency:", confidence=0.4),
        Mark(words=("end", "to", "latency", "tflops"), pattern=r"^End-to-End +=> Latency:", confidence=0.4),
        Mark(words=("chosen_last_scores",), pattern=r"chosen_last_scores \(higher is better\)", confidence=0.4),
        Mark(words=("config", "py", "print"), pattern=r"\[config\.py:\d+:print\]", confidence=0.6),
        Mark(words=("evaluating", "perplexity"), pattern=r"\*{5} Evaluating perplexity, Epoch", confidence=0.4),
        Mark(words=("real_accelerator",), pattern=r"Setting ds_accelerator to", confidence=0.6),
        Mark(
            words=("latency", "gather", "training", "time"), pattern=r"\|E2E latency=.*\|Gather latency", confidence=0.6
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [DeepSpeed]
