"""Formats that many programs share: epochs that begin, progress bars with a loss, losses that are no number.

None of it names a framework. Lines of text are in `common_loops` (copied) and `plain_loop` (hand-written).
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, hookimpl

_COUNTED = {"step_in_epoch": Field("iteration"), "steps_per_epoch": Field("target_iteration")}
# A path has a slash or an ending.
_PATH = r"['\"]?(?P<path>[\w~=@-]{0,60}[/.][^\s'\",)]{1,400})"
# The beginning of a sentence: after a logger's prefix.
_BEGIN = r"(?:^|[\]):>|*=-] ?| {2})"
_END = r"[.!: ]{0,8}$"
_BAR_LOSS = ("loss", "loss (batch)", "avr_loss", "step_loss", "train_loss")


class Generic(Detector):
    """Epochs, progress bars and events in words that belong to nobody."""

    name = "generic"
    layer = ""
    formats = (
        *(
            LogFormat(
                name=name,
                words=("epoch",),
                head=rf"{before}(?P<epoch>\d{{1,18}})/(?P<total_epochs>\d{{1,18}})\s{{0,40}}$",
                joins="epoch",
                is_alone=True,
                confidence=0.1,
                example=example,
            )
            for name, before, example in (
                ("epoch_banner", r"\b(?:Epoch|EPOCH|epoch)(?: |: ?)", "Epoch 2/10"),
                ("epoch_banner_coqui", "> EPOCH: ", " > EPOCH: 2/10"),
            )
        ),
        LogFormat(
            name="plain_bar",
            words=("loss", "s"),
            # A bar with a counter of the whole training is the general reader's.
            reject=r"(?i)(?:env|global)_steps?=|(?<![a-z])(?:find(?:ing|er)|valid|evaluat|testing|predict|sanity|quanti|calibrat)[^|\r\n]{0,80}%\|",
            head=r"(?<=\d)%\|(?=[^|\[]{0,120}\| {0,12}\d{1,12}/\d{1,12} \[[^\]]{0,240}?\bloss(?: \(batch\))?=)",
            layout="bar",
            fields=_COUNTED,
            loss=_BAR_LOSS,
            needs=("lm_loss",),
            confidence=0.2,
            example=" 10%|#         | 100/1000 [01:00<09:00,  1.66it/s, loss=0.05]",
        ),
        LogFormat(
            name="spaced_bar",
            words=("loss", "s"),
            reject=r"(?i)(?<![a-z])(?:find(?:ing|er)|valid|evaluat|testing|predict|sanity|quanti|calibrat)[^|\r\n]{0,80}%\|",
            head=r"(?<=\d)%\|[^|\[]{0,80}\| {0,4}(?P<iteration>\d{1,12})/(?P<target_iteration>\d{1,12}) \["
            r"[^\]]{0,80}?, (?:lr: (?P<lr>[\d.e-]{1,24}) )?loss: (?P<loss>[-+\d.e]{1,24}|nan)",
            confidence=0.2,
            example="my_lora:  5%|5         | 100/2000 [05:12<1:38:51,  3.12s/it, lr: 1.0e-04 loss: 4.123e-01]",
        ),
    )
    events = (
        EventPattern(
            type="checkpoint_saving",
            words=("solver", "cpp", "snapshotting", "to", "file"),
            pattern=r"solver\.cpp:\d{1,6}\] Snapshotting to \w{1,20} (?:proto )?file (?P<path>\S{1,400})",
            names_framework=False,
            example="I0101 12:00:07.12 9 solver.cpp:454] Snapshotting to binary proto file snap_iter_200.caffemodel",
        ),
        EventPattern(
            type="training_ended",
            words=("cpp", "optimization", "done"),
            pattern=r"(?:solver|caffe)\.cpp:\d{1,6}\] Optimization Done\.",
            names_framework=False,
            example="I0101 12:00:08.123456 12 solver.cpp:322] Optimization Done.",
        ),
        EventPattern(
            type="training_started",
            words=("cpp", "starting", "optimization"),
            pattern=r"caffe\.cpp:\d{1,6}\] Starting Optimization\s*$",
            names_framework=False,
            only_idle=True,
        ),
        EventPattern(
            type="loss_not_finite",
            words=("loss", "is", "stopping", "training"),
            pattern=r"(?P<reason>Loss is (?:nan|inf|NaN|Inf)), stopping training",
        ),
        EventPattern(
            type="loss_not_finite",
            words=("loss", "is", "nan"),
            pattern=r"(?P<reason>\b[lL]oss is (?:NaN|nan))(?! or)",
        ),
        EventPattern(
            type="loss_not_finite",
            words=("non", "finite", "loss"),
            pattern=r"(?P<reason>\b[nN]on-finite loss)",
        ),
        *(
            EventPattern(
                type="loss_not_finite",
                words=("nan", "loss", word),
                pattern=rf"(?P<reason>\b(?:nan|NaN|Nan|NAN) loss {word})",
            )
            for word in ("detected", "encountered", "found")
        ),
        EventPattern(  # Coqui's trainer
            type="checkpoint_saved",
            words=("best", "model"),
            pattern=rf"^\s*> BEST MODEL : {_PATH}",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("checkpoint",),
            pattern=rf"^\s*> CHECKPOINT : {_PATH}",
        ),
        EventPattern(  # ESPnet
            type="epoch_started",
            words=("epoch", "started"),
            pattern=r"\b(?P<epoch>\d+)/(?P<total_epochs>\d+)epoch started\.",
        ),
        EventPattern(
            type="training_started",
            words=("start", "training"),
            pattern=r"\*{5} ?Start training\b",
        ),
        *(
            EventPattern(
                type="training_started",
                words=("training", word),
                pattern=rf"{_BEGIN}(?i:{word}) (?:the |model )?[tT]raining(?: loop| process| now)?{_END}",
                only_idle=True,
            )
            for word in ("start", "starting", "begin", "beginning")
        ),
        EventPattern(
            type="training_started",
            words=("training", "started"),
            pattern=rf"{_BEGIN}[tT]raining(?: has)? (?:started|begins){_END}",
            only_idle=True,
        ),
        *(
            EventPattern(
                type="training_ended",
                words=("training", word),
                pattern=rf"\b[Tt]raining (?:is |has |was )?{word}(?: (?:in|after) \d[\w.: ]{{0,40}}?)?{_END}",
            )
            for word in ("complete", "completed", "finished", "done")
        ),
        *(
            EventPattern(
                type="training_ended",
                words=("training", word),
                pattern=rf"{_BEGIN}(?i:{word})(?: with)? (?:the |model )?[tT]raining{_END}",
            )
            for word in ("finished", "completed", "done")
        ),
        EventPattern(
            type="training_failed",
            words=("exception", "during", "training"),
            pattern=r"(?P<reason>\b[Ee]xception during training\b:?[^\r\n]{0,200})",
        ),
        EventPattern(
            type="training_failed",
            words=("error", "during", "training"),
            pattern=r"(?P<reason>\b[Ee]rror during training\b:?[^\r\n]{0,200})",
        ),
        EventPattern(
            type="checkpoint_saving",
            words=("writing", "checkpoint", "step"),
            pattern=r"(?:^|[\s\]:])Writing checkpoint (?P<path>\S+) at step (?P<iteration>\d+)\s*$",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("saved", "checkpoint", "step"),
            pattern=r"(?:^|[\s\]:])Saved checkpoint to (?P<path>\S+) at step (?P<iteration>\d+)\s*$",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Generic]
