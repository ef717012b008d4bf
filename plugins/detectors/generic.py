"""What many print in the same words: epochs that begin, progress bars with a loss, losses that are no number.

None of it names a framework. Lines of text are in `common_loops` (copied) and `plain_loop` (hand-written).
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, Field, LogFormat, hookimpl

_COUNTED = {"step_in_epoch": Field("iteration"), "steps_per_epoch": Field("target_iteration")}
_BAR_LOSS = ("loss", "avr_loss", "step_loss", "train_loss")


class Generic(Detector):
    """Epochs, progress bars and events in words that belong to nobody."""

    name = "generic"
    layer = ""
    formats = (
        LogFormat(
            name="epoch_banner",
            words=("epoch",),
            head=r"\bEpoch (?P<epoch>\d+)/(?P<total_epochs>\d+)\s*$",
            joins="epoch",
            is_alone=True,
            confidence=0.1,
            example="Epoch 2/10",
        ),
        LogFormat(
            name="steps_bar",
            words=("steps", "it", "s"),
            head=r"(?:\bSteps|\bsteps): *(?=\d+%\|)",
            layout="bar",
            fields=_COUNTED,
            loss=_BAR_LOSS,
            needs=("lm_loss",),
            confidence=0.3,
            example="Steps:  10%| | 100/1000 [01:00<09:00,  1.66it/s, lr=1e-5, step_loss=0.05]",
        ),
        LogFormat(
            name="plain_bar",
            words=("loss", "it", "s"),
            head=r"(?<=\d)%\|(?=[^|\[]{0,120}\| {0,12}\d{1,12}/\d{1,12} \[[^\]]{0,240}?\bloss=)",
            layout="bar",
            fields=_COUNTED,
            loss=_BAR_LOSS,
            needs=("lm_loss",),
            confidence=0.2,
            example=" 10%|#         | 100/1000 [01:00<09:00,  1.66it/s, loss=0.05]",
        ),
    )
    events = (
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
        EventPattern(
            type="checkpoint_saving",
            words=("writing", "checkpoint", "step"),
            pattern=r"^Writing checkpoint (?P<path>\S+) at step (?P<iteration>\d+)\s*$",
        ),
        EventPattern(
            type="checkpoint_saved",
            words=("saved", "checkpoint", "step"),
            pattern=r"^Saved checkpoint to (?P<path>\S+) at step (?P<iteration>\d+)\s*$",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Generic]
