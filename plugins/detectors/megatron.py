"""Megatron-LM, 2019 to now, with its forks that keep the line (ROCm, swiss-ai, Megatron-Bridge refines it).

The step's line comes from `training_log` in megatron/training/training.py: ` iteration N/ M | key: value | ... |`,
every part but the first optional and in no fixed order. A loss that is not a number is not printed at all. Below it
stand the timers (megatron/core/timers.py), each on a line of its own: the smallest and the largest of all ranks, or the
largest alone (`--timing-log-option minmax` and `max`).
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, Table, hookimpl

# The timers that say where a step's time went, and the names of their largest time of all ranks.
_TIMERS = {
    "forward-backward": "forward_backward_ms",
    "forward-compute": "forward_compute_ms",
    "backward-compute": "backward_compute_ms",
    "batch-generator": "data_loading_time_ms",
    "all-grads-sync": "grads_sync_ms",
    "params-all-gather": "params_gather_ms",
    "optimizer": "optimizer_ms",
}


def _timer(printed: str, stored: str) -> LogFormat:
    """The line of one timer, which belongs to the step above it."""
    name = stored.removesuffix("_ms")
    return LogFormat(
        name=f"timer_{printed.replace('-', '_')}",
        words=tuple(printed.split("-")),
        head=rf"(?<![\w-]){printed} \.{{3,}}: (?:\((?P<{name}_min>\d+\.\d+), )?(?P<{name}>\d+\.\d+)\)?\s*$",
        fields={name: Field(stored), f"{name}_min": Field(f"{stored}_min")},
        joins="beside",
        is_alone=True,
        confidence=0.5,
        example=f"    {printed + ' ':.<48}: (1.20, 3.40)",
    )


def _timer_of_ranks(printed: str, stored: str) -> Table:
    """A timer of all ranks (`--timing-log-option all`): its name, and below it a line for each rank."""
    return Table(
        name=f"timer_{printed.replace('-', '_')}_of_ranks",
        words=tuple(printed.split("-")),
        header=rf"^\s*(?P<name>{printed}):\s*$",
        row=r"\s*rank +(?P<rank>\d{1,6}): (?P<value>\d+\.\d+)\s*$",
        by_rank=True,
        fields={printed: Field(stored)},
        confidence=0.5,
    )


class Megatron(Detector):
    """Megatron-LM and its forks."""

    name = "megatron"
    layer = "base"
    modules = ("megatron",)
    distributions = ("megatron-core",)
    environment = ("MEGATRON_CONFIG", "MEGATRON_LM_PATH")
    config_keys = ("megatron_config",)
    project_keywords = ("megatron",)
    formats = (
        LogFormat(
            name="iteration",
            words=("iteration",),
            head=r"\biteration(?:\s+|[:=]\s*)(?P<iteration>\d+)\s*/\s*(?P<target_iteration>\d+)\s*\|",
            layout="pipes",
            fields={"throughput(tflop/s/gpu)": Field("tflops", "compute"), "memory(gib)": Field("mem_usage", "memory")},
            loss=("lm_loss", "loss"),
            confidence=0.6,
            example=" iteration  5/ 20 | elapsed time per iteration (ms): 350.0 | lm loss: 1.2E+01 |",
        ),
        *(_timer(printed, stored) for printed, stored in _TIMERS.items()),
    )
    tables = tuple(_timer_of_ranks(printed, stored) for printed, stored in _TIMERS.items())
    events = (
        EventPattern(
            type="training_started",
            words=("before", "the", "start", "of", "training"),
            pattern=r"\[before the start of training(?: step)?\]",
        ),
        EventPattern(type="training_started", words=("training",), pattern=r"^(?:.*[\])]:?)?\s*training \.\.\.\s*$"),
        EventPattern(
            type="training_ended", words=("after", "training", "is", "done"), pattern=r"\[after training is done\]"
        ),
        EventPattern(
            type="training_ended",
            words=("exiting", "program"),
            pattern=r"\[exiting program (?:at iteration\s+(?P<iteration>\d+)|after (?P<reason>[^\]]+))\]",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "checkpoint", "iteration"),
            pattern=r"\bsaving checkpoint at iteration\s+(?P<iteration>\d+)(?:\s+to\s+(?P<path>\S+))?",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("scheduled", "an", "async", "checkpoint", "save"),
            pattern=r"\bscheduled an async checkpoint save at iteration\s+(?P<iteration>\d+)(?:\s+to\s+(?P<path>\S+))?",
        ),
        # progress.txt, with --log-progress
        EventPattern(
            type="checkpoint_saving",
            words=("job", "id", "saving", "checkpoint", "iteration"),
            pattern=r"Saving (?:async )?checkpoint\s+Iteration: (?P<iteration>\d+)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("job", "id", "saved", "checkpoint", "iteration"),
            pattern=r"Saved (?:async )?checkpoint\s+Iteration: (?P<iteration>\d+)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("successfully", "saved", "iter_", "model_optim_rng"),
            pattern=r"\bsuccessfully saved (?P<path>\S*?iter_(?P<iteration>\d+)\S*)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("successfully", "saved", "checkpoint", "iteration"),
            pattern=r"^(?!.*NeMo).*successfully saved checkpoint (?:from|at) iteration\s+(?P<iteration>\d+)"
            r"(?:\s+to\s+(?P<path>\S+))?",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("successfully", "loaded", "checkpoint"),
            pattern=r"successfully loaded checkpoint(?:\s+from)?\s+(?P<path>\S+)"
            r"(?:.*?at iteration\s+(?P<iteration>\d+))?",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("successfully", "loaded", "iter_", "model_optim_rng"),
            pattern=r"\bsuccessfully loaded (?P<path>\S*?iter_(?P<iteration>\d+)\S*)",
        ),
        EventPattern(
            type="loss_not_finite",
            words=("found", "in", "local"),
            pattern=r"(?P<reason>found (?:NaN|Inf|nan|inf)(?:/Inf)? in local (?:forward loss|grad norm)[^,.]*)",
        ),
        EventPattern(
            type="config",
            words=("train_iters",),
            pattern=r"^(?:.*[\]:])?\s*train_iters \.+\s*(?P<target_iteration>\d+)\s*$",
        ),
    )
    marks = (
        Mark(words=("validation", "loss", "at", "iteration"), pattern=r"validation loss at iteration", confidence=0.5),
        Mark(
            words=("validation", "loss", "at", "end", "training"), pattern=r"validation loss at the end", confidence=0.5
        ),
        Mark(words=("setting", "training", "data"), pattern=r"setting training data start iteration", confidence=0.5),
        Mark(words=("after", "are", "built"), pattern=r"\[after (?:dataloaders|model, optimizer)", confidence=0.5),
        Mark(words=("done", "with", "setup"), pattern=r"^(?:.*[\]:])?\s*done with setup \.\.\.", confidence=0.4),
        Mark(words=("time", "ms", "model", "optimizer"), pattern=r"time \(ms\) \| model.and.optimizer", confidence=0.5),
        Mark(
            words=("min", "max", "time", "across", "ranks"), pattern=r"\(min, max\) time across ranks", confidence=0.5
        ),
        Mark(
            words=("number", "of", "parameters", "parallel", "rank"), pattern=r"model parallel rank \(", confidence=0.5
        ),
        Mark(words=("theoretical", "memory", "footprints"), pattern=r"Theoretical memory footprints", confidence=0.5),
        Mark(
            words=("initializing", "torch", "distributed"), pattern=r"> initializing torch distributed", confidence=0.4
        ),
        Mark(
            words=("initialized", "parallel", "with", "size"),
            pattern=r"> initialized \w+ model parallel",
            confidence=0.5,
        ),
        Mark(words=("time", "to", "initialize", "megatron"), pattern=r"time to initialize megatron", confidence=0.6),
        Mark(words=("padded", "vocab", "dummy", "tokens"), pattern=r"> padded vocab \(size: ", confidence=0.5),
        Mark(
            words=("using", "world", "parallel", "size"),
            pattern=r"using world size: \d+, data-parallel",
            confidence=0.5,
        ),
        Mark(words=("building", "gpt", "model"), pattern=r"\bbuilding GPT2? model \.\.\.", confidence=0.4),
        Mark(words=("evaluating", "iter"), pattern=r"^(?:.*[\]:])?\s*Evaluating iter \d+/\d+", confidence=0.4),
        Mark(words=("setting", "micro", "batches"), pattern=r"setting number of micro-?batches to", confidence=0.5),
        Mark(words=("latest_checkpointed_iteration",), pattern=r"latest_checkpointed_iteration\.txt", confidence=0.5),
        Mark(words=("time", "forward", "compute"), pattern=r"time \(ms\) \| forward-compute", confidence=0.5),
        Mark(words=("after", "iterations", "memory", "mb"), pattern=r"memory \(MB\) \| allocated", confidence=0.5),
        Mark(words=("model", "and", "optimizer", "setup"), pattern=r"model-and-optimizer-setup \.{3,}", confidence=0.5),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Megatron]
