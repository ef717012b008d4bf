"""Hugging Face's Trainer and its children's common dictionary; the children refine it in files of their own.

`{'loss': 1.26, 'grad_norm': 0.9, 'learning_rate': 1e-05, 'epoch': 0.03}`, a Python repr with bare nan; Transformers 5
quotes every number. The step is on the progress bar before it, if anywhere.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, hookimpl


class Transformers(Detector):
    """Hugging Face Transformers: the library, and what its Trainer prints."""

    name = "transformers"
    layer = "base"
    is_library = True
    modules = ("transformers",)
    distributions = ("transformers",)
    config_keys = ("transformers_version",)
    project_keywords = ("huggingface", "transformers")
    formats = (
        LogFormat(
            name="dictionary",
            words=("loss",),
            # Neither an evaluation's dictionary, nor one that is assigned, nor a part of another.
            head=r"\{(?<! = \{)(?<!['\"]: \{)(?=\s*['\"](?!eval_|valid_|val_|test_)[\w/. ()-]+['\"]\s*:)",
            layout="mapping",
            fields={
                "step": Field("iteration"),
                "global_step": Field("iteration"),
                "global_step/max_steps": Field(("iteration", "target_iteration")),
                "iteration": Field(("iteration", "target_iteration")),
                "current_steps": Field("iteration"),
                "total_steps": Field("target_iteration"),
                "memory/max_mem_active(gib)": Field("mem_usage", "memory"),
                "memory/max_active (gib)": Field("mem_usage", "memory"),
                "memory/device_mem_reserved(gib)": Field("mem_reserved", "memory"),
                "memory/device_reserved (gib)": Field("mem_reserved", "memory"),
                "tokens/train_per_sec_per_gpu": Field("tokens_per_gpu"),
                "train_samples_per_second": Field("samples_per_second"),
                "vram_allocated": Field("mem_usage", "memory"),
            },
            loss=("loss",),
            needs=("lm_loss", "current_steps", "target_iteration"),
            # A Trainer's dictionary has an epoch, a step or a learning rate; that of a quantised layer has none.
            # Its epoch is no whole number: one that is counts the epochs of another loop.
            require=r"['\"](?:learning_rate|grad_norm|(?:current_)?steps?|iteration|global_step(?:/max_steps)?)['\"]"
            r"|['\"]epoch['\"]: ?['\"]?\d{1,9}\.",
            # Nothing but known texts, which are found quicker than a pattern.
            reject='train_runtime|"num_updates"|valid_loss|\'layer\'|"layer"|\'module\'|"module"|\'tid\'|"tid"'
            "|'trial_id'|\"trial_id\"",
            confidence=0.6,
            example="{'loss': 1.2607, 'grad_norm': 0.9, 'learning_rate': 6.3e-06, 'epoch': 0.03}",
        ),
    )
    events = (
        EventPattern(
            type="training_started",
            words=("running", "training"),
            pattern=r"\*{5} Running training \*{5}",
        ),
        EventPattern(
            type="training_ended",
            words=("train_runtime", "train_loss"),
            pattern=r"\{['\"]train_runtime['\"]: ['\"]?(?P<train_runtime_seconds>[\d.e+]+)",
        ),
        EventPattern(
            type="training_ended",
            words=("training", "completed", "do", "not", "forget"),
            pattern=r"Training completed\. Do not forget to share your model",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("continuing", "training", "from", "global", "step"),
            pattern=r"Continuing training from global step (?P<iteration>\d+)",
        ),
        EventPattern(
            type="config",
            words=("total", "optimization", "steps"),
            pattern=r"Total optimization steps = (?P<target_iteration>[\d,]+)",
        ),
        EventPattern(  # unsloth's banner
            type="config",
            words=("num", "examples", "epochs", "total", "steps"),
            pattern=r"Num Epochs = (?P<total_epochs>[\d,]+) \| Total steps = (?P<target_iteration>[\d,]+)",
        ),
        EventPattern(
            type="config",
            words=("num", "examples", "epochs"),
            pattern=r"Num examples = [\d,]+ \| Num Epochs = (?P<total_epochs>[\d,]+)\s*$",
        ),
        EventPattern(
            type="config",
            words=("total", "batch", "size", "steps"),
            pattern=r"Total batch size = (?P<global_batch_size>[\d,]+) \| Total steps = (?P<target_iteration>[\d,]+)",
        ),
        EventPattern(
            type="config",
            words=("total", "train", "batch", "size"),
            pattern=r"Total train batch size \([^)]*\) = (?P<global_batch_size>[\d,]+)",
        ),
        EventPattern(
            type="config",
            words=("num", "epochs"),
            pattern=r"(?<!\| )Num [Ee]pochs = (?P<total_epochs>[\d,]+)\s*$",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("saving", "model", "checkpoint", "to"),
            pattern=r"Saving model checkpoint to (?P<path>\S*?(?:checkpoint-(?P<iteration>\d+))?)(?:\s|$)",
        ),
    )
    marks = (
        Mark(words=("eval_runtime",), pattern=r"\{['\"]eval_", confidence=0.5),
        Mark(words=("eval_loss",), pattern=r"\{['\"]eval_", confidence=0.5),
        Mark(words=("trainer", "py"), pattern=r"\[INFO\|trainer(?:_\w+)?\.py:\d+\]", confidence=0.6),
        Mark(words=("info", "py"), pattern=r"\[INFO\|\w+\.py:\d+\] \d{4}-", confidence=0.5),
        Mark(words=("warning", "py"), pattern=r"\[WARNING\|\w+\.py:\d+\] \d{4}-", confidence=0.5),
        Mark(words=("running", "evaluation"), pattern=r"\*{5} Running Evaluation \*{5}", confidence=0.5),
        *(
            Mark(words=(split, "metrics"), pattern=rf"\*{{5}} {split} metrics \*{{5}}", confidence=0.5)
            for split in ("train", "eval", "predict")
        ),
        Mark(words=("loading", "checkpoint", "shards"), pattern=r"Loading checkpoint shards:", confidence=0.5),
    )


class TransformersTrainer(Detector):
    """The Transformers Trainer as the wrapper that runs a training; told by the run's configuration."""

    name = "transformers_trainer"
    layer = "wrapper"
    is_library = True
    bases = ("transformers", "deepspeed")
    config_keys = ("output_dir+per_device_train_batch_size", "trainer=transformers")


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detectors of this file."""
    return [Transformers, TransformersTrainer]
