"""PyTorch Lightning 1.x and 2.x: tqdm and rich bars, the CSV logger's file, its messages.

Bars count batches of an epoch; the keys of the postfix are the user's own, except `loss` (1.x: mean of 20 steps).
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, Mark, Table, hookimpl

_LOSS = (
    "loss",
    "train_loss_step",
    "train_loss",
    "train/loss_step",
    "train/loss",
    "training_loss",
    "train/total_loss",
    "loss_step",
    "train_loss_epoch",
    "train/loss_epoch",
    "total_loss",
)
_FIELDS = {"global_step": Field("global_step"), "step": Field("global_step"), "v_num": Field("", "text")}


class Lightning(Detector):
    """PyTorch Lightning."""

    name = "lightning"
    layer = "wrapper"
    modules = ("lightning", "pytorch_lightning")
    distributions = ("lightning", "pytorch-lightning")
    environment = ("PL_TRAINER_GPUS", "PL_GLOBAL_SEED")
    config_keys = ("framework=pytorch_lightning",)
    project_keywords = ("lightning",)
    formats = (
        LogFormat(
            name="bar",
            words=("epoch", "it"),
            head=r"\bEpoch (?P<epoch>\d+)(?:/\d+)?:(?: ?:)? ?(?=[^\[]{0,400}?\b\d{1,12}(?:/\d{1,12}|/\?|it)\s{0,4}\[)",
            layout="bar",
            fields=_FIELDS,
            loss=_LOSS,
            needs=("lm_loss",),
            reject=r"reduced_train_loss=",
            confidence=0.55,
            example="Epoch 3:  33%|███ | 307/938 [00:01<00:02, 289.04it/s, loss=0.198, v_num=51]",
        ),
        LogFormat(
            name="bar_without_rate",
            words=("epoch", "v_num"),
            head=r"\bEpoch (?P<epoch>\d+)(?:/\d+)?:(?: ?:)? ?(?=[^\[]{0,400}?\b\d{1,12}/[\d?]{1,12}\s{0,4}\[)",
            layout="bar",
            fields=_FIELDS,
            loss=_LOSS,
            needs=("lm_loss",),
            reject=r"reduced_train_loss=",
            confidence=0.55,
            example="Epoch 3:  33%|███ | 307/938 [00:01<00:02, loss=0.198, v_num=51]",
        ),
        LogFormat(
            name="rich_bar",
            words=("epoch", "it", "v_num"),
            head=r"\bEpoch (?P<epoch>\d+)(?:/(?P<last_epoch>\d+))? [━╸╺ -]+(?P<step_in_epoch>\d+)"
            r"/(?P<steps_per_epoch>\d+) [\d:]+ • [\d:-]+ [\d.]+(?:it/s|s/it) ",
            layout="spaced",
            fields={**_FIELDS, "last_epoch": Field("", "text")},
            loss=_LOSS,
            needs=("lm_loss",),
            confidence=0.6,
            example="Epoch 0/9 ━━━━ 938/938 0:00:05 • 0:00:00 178.31it/s v_num: 0.000 train_loss: 0.05",
        ),
    )
    tables = (
        Table(
            name="csv",
            words=("epoch", "step"),
            header=r"^(?=[^\s]*\bepoch\b)(?=[^\s]*\bstep\b)[\w./@-]+(?:,[\w./@-]+)+\s*$",
            row=r"^(?P<cells>(?:[-+]?(?:[\d.][-+\d.eE]*|nan|inf))?(?:,(?:[-+]?(?:[\d.][-+\d.eE]*|nan|inf))?)+)\s*$",
            separator=",",
            fields={"step": Field("iteration")},
            loss=_LOSS,
            needs=("lm_loss",),
        ),
    )
    events = (
        EventPattern(
            type="training_ended",
            words=("trainer", "fit", "stopped", "reached"),
            pattern=r"`Trainer\.fit` stopped: `(?:max_steps=(?P<iteration>\d+)|max_epochs=(?P<epoch>\d+)|[^`]*)`"
            r" reached",
        ),
        EventPattern(
            type="training_ended",
            words=("trainer", "fit", "stopped"),
            pattern=r"`Trainer\.fit` stopped: (?P<reason>No training batches|`trainer\.should_stop` was set)",
        ),
        EventPattern(
            type="training_ended",
            words=("signaling", "trainer", "to", "stop"),
            pattern=r"Signaling Trainer to stop",
        ),
        EventPattern(
            type="training_started",
            words=("local_rank", "cuda_visible_devices"),
            pattern=r"^(?:.*\s)?LOCAL_RANK: \d+ - CUDA_VISIBLE_DEVICES:",
        ),
        EventPattern(
            type="checkpoint_loaded",
            words=("restored", "all", "states", "checkpoint"),
            pattern=r"Restored all states from the checkpoint (?:file )?at (?P<path>\S+)",
        ),
        EventPattern(
            type="loss_not_finite",
            words=("loss", "returned", "training_step", "nan"),
            pattern=r"(?P<reason>The loss returned in `training_step` is nan)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("epoch", "global", "step", "reached", "saving", "model"),
            pattern=r"Epoch (?P<epoch>\d+), global step (?P<iteration>\d+): .*saving model to ['\"](?P<path>[^'\"]+)",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("epoch", "reached", "best", "saving", "model", "to"),
            pattern=r"Epoch (?P<epoch>\d+)(?:, step (?P<iteration>\d+))?: \S+ reached .*"
            r"saving model to ['\"]?(?P<path>[^'\"\s]+)",
        ),
        EventPattern(
            type="process_terminated",
            words=("received", "sigterm"),
            pattern=r"(?:^|\s|\])Received SIGTERM: 15",
        ),
        EventPattern(
            type="process_terminated",
            words=("detected", "keyboardinterrupt"),
            pattern=r"Detected KeyboardInterrupt",
        ),
    )
    marks = (
        Mark(words=("it", "v_num"), pattern=r"\bv_num=", confidence=0.55),
        Mark(words=("epoch", "it", "s"), pattern=r"Epoch \d+: +\d+%\|.{0,200}\b\d{1,12}/\d{1,12} \[", confidence=0.4),
        Mark(words=("training", "it"), pattern=r"^Training: +(?:0it|\d+%\|)", confidence=0.4),
        Mark(words=("validation", "dataloader"), pattern=r"Validation DataLoader \d+:", confidence=0.5),
        Mark(words=("pytorch_lightning",), pattern=r"\bpytorch_lightning[./]", confidence=0.6),
        Mark(words=("lightning", "pytorch"), pattern=r"\blightning[./]pytorch[./]", confidence=0.6),
        Mark(words=("sanity", "checking"), pattern=r"\bSanity [Cc]heck(?:ing)?(?: DataLoader \d+)?:", confidence=0.5),
        Mark(words=("testing", "dataloader"), pattern=r"Testing DataLoader \d+:", confidence=0.5),
        Mark(words=("predicting", "dataloader"), pattern=r"Predicting DataLoader \d+:", confidence=0.5),
        Mark(words=("name", "type", "params"), pattern=r"^\s*\| Name\s+\| Type\s+\| Params", confidence=0.6),
        Mark(
            words=("total", "estimated", "model", "params"),
            pattern=r"Total estimated model params size",
            confidence=0.6,
        ),
        Mark(
            words=("all", "distributed", "processes", "registered"), pattern=r"processes registered\.", confidence=0.5
        ),
        Mark(words=("distributed_backend",), pattern=r"\bdistributed_backend=\w+", confidence=0.55),
        Mark(words=("tensor", "cores", "device", "precision"), pattern=r"has Tensor Cores", confidence=0.5),
        Mark(words=("was", "not", "in", "top"), pattern=r"\b[sS]?tep \d+: \S+ was not in top \d+", confidence=0.6),
        Mark(words=("global_rank", "member"), pattern=r"GLOBAL_RANK: \d+, MEMBER: \d+/\d+", confidence=0.6),
        Mark(
            words=("gpu", "available", "used"),
            pattern=r"^(?:.*[:\])]\s*)?GPU available: (?:True|False)",
            confidence=0.5,
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Lightning]
