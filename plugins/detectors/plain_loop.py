"""Loops that people write themselves: `Step 100/5000 | loss 2.345 | lr 3e-4`; they name no framework.

Such a line begins with its step and has a loss. A line that speaks of validation or a test is no step.
"""

from __future__ import annotations

from lens_core import Detector, LogFormat, hookimpl

_LOSS = ("loss", "train_loss", "training_loss", "total_loss", "lm_loss")
_EVALUATION = r"(?i)(?<![a-z])(?:val|valid|validation|eval|evaluation|evaluating|test|dev)(?![a-z])"
_LINE_BEGINS = r"(?:^|(?<=[\]|:)>-] ))\[?(?:train(?:ing)?[ _])?(?:global[ _])?"
_NUMBER_OF_TOTAL = r"\W{0,3} ?(?P<iteration>\d+)(?: ?(?:/|of) ?(?P<target_iteration>\d+))?\]?(?=[\s,:;|)-])"


def _counted_by(word: str, example: str) -> LogFormat:
    return LogFormat(
        name=word,
        words=(word, "loss"),
        head=f"(?i){_LINE_BEGINS}{word}{_NUMBER_OF_TOTAL}",
        layout="loose",
        loss=_LOSS,
        needs=("lm_loss",),
        reject=_EVALUATION,
        confidence=0.2,
        example=example,
    )


class PlainLoop(Detector):
    """Step lines of loops that people write themselves."""

    name = "plain_loop"
    layer = ""
    formats = (
        _counted_by("step", "Step 100/5000 | loss 2.345 | lr 3.00e-04 | grad norm 1.23 | tokens/sec 12,345"),
        _counted_by("iteration", "2024-05-01 12:00:00 INFO - Iteration: 100, loss: 2.345, lr: 0.0003"),
        _counted_by("iter", "[iter 100/500] loss=2.345 acc=0.5"),
        LogFormat(
            name="epoch_and_step",
            words=("epoch", "loss"),
            head=r"(?i)\bepoch:? \[?(?P<epoch>\d+)(?:/\d+)?\]?,? (?:step|batch|iter|iteration):? "
            r"\[?(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+)\]?(?=[\s,:;|-])",
            layout="loose",
            loss=_LOSS,
            needs=("lm_loss",),
            reject=_EVALUATION,
            epoch_base=1,
            confidence=0.2,
            example="Epoch [1/10], Step [100/600], Loss: 0.1234",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [PlainLoop]
