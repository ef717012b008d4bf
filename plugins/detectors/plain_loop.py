"""Formats of hand-written loops, declared nowhere else: `Step 100/5000 | loss 2.345 | lr 3e-4`, no framework.

Such a line begins with its count (a step, an iteration, an epoch and the step in it), and labelled numbers in any order
and with any separators follow, one of which is a loss. It speaks of training only: one that speaks of validation or a
test is no step. A line that ends an epoch may tell of both; it counts where the loop prints nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

from lens_core import Detector, Field, LogFormat, Table, hookimpl

_LOSS = ("loss", "train_loss", "training_loss", "total_loss", "lm_loss", "avg_loss", "average_loss", "mean_loss")
# `loss` as a word of its own, and the spelling in which it is none.
_WORDS_OF_LOSS = ("loss", "train_loss")
_OF_EVALUATION = r"(?i)(?<![a-z])(?:val|valid|validation|eval|evaluation|evaluating|test|dev)(?![a-z])"
# An epoch's last line may give a validation's numbers beside the training's, each under a name of its own.
_NOT_OF_AN_EPOCH = (
    r"(?i)(?<![a-z])(?:val|valid|validation|eval|test|dev)(?![ _-]?[a-z])|evaluat"
    r"|(?<![a-z])(?:steps?|iters?|iterations?|batch(?:es)?)[ :=\[]{0,3}\d|%\||it/s|s/it"
)
_NAME = r"[A-Za-z_][\w./@ -]{0,60}"
_COLUMN = r"[A-Za-z_][\w./@-]{0,60}"
_CSV = r"(?P<cells>[-+\d.eEnaif,]{3,2000})"
_NUMBERS = r"(?P<cells>[-+\d.eEnaif][-+\d.eEnaif\s]{2,2000})"
_LINE_BEGINS = r"(?:^|(?<=[\]|:)>-] ))\[?(?:train(?:ing)?[ _])?"
_OF_TOTAL = r"\W{0,3} ?(?P<%s>\d+)(?: ?(?:/|of) ?(?P<%s>\d+))?\]?(?=[\s,:;|)-])"


def _counted_by(word: str, example: str) -> Iterator[LogFormat]:
    """Lines that begin with a step, under this word."""
    of_all = "" if word.startswith("global") else "(?:global[ _])?"
    head = rf"(?i){_LINE_BEGINS}{of_all}{word}{_OF_TOTAL % ('iteration', 'target_iteration')}"
    for loss in _WORDS_OF_LOSS:
        yield _make_line_format(word, word, loss, head, _OF_EVALUATION, example.replace("loss", loss), confidence=0.2)


def _counted_within_epochs() -> Iterator[LogFormat]:
    """Lines that begin with an epoch and the step in it."""
    head = (
        r"(?i)\bepoch:? \[?(?P<epoch>\d+)(?:/\d+)?\]?,? (?:step|batch|iter|iteration):? "
        r"\[?(?P<step_in_epoch>\d+)/(?P<steps_per_epoch>\d+)\]?(?=[\s,:;|-])"
    )
    example = "Epoch [1/10], Step [100/600], Loss: 0.1234"
    yield _make_line_format("epoch_and_step", "epoch", "loss", head, _OF_EVALUATION, example, confidence=0.2)


def _counted_by_epoch() -> Iterator[LogFormat]:
    """Lines that begin with an epoch and sum it up."""
    head = rf"(?i){_LINE_BEGINS}epoch{_OF_TOTAL % ('epoch', 'total_epochs')}"
    example = "Epoch 3/10 - train_loss: 0.1234 - val loss: 0.2345 - val acc: 0.91"
    for loss in _WORDS_OF_LOSS:
        # Surer of a step in an epoch than of the epoch alone.
        yield _make_line_format("epoch", "epoch", loss, head, _NOT_OF_AN_EPOCH, example, confidence=0.1, sums_up=True)


def _make_line_format(
    name: str, word: str, loss: str, head: str, reject: str, example: str, *, confidence: float, sums_up: bool = False
) -> LogFormat:
    return LogFormat(
        name=name if loss == "loss" else f"{name}_{loss}",
        words=(word, loss),
        head=head,
        layout="loose",
        loss=_LOSS,
        needs=("lm_loss",),
        reject=reject,
        epoch_base=1,
        sums_up_epoch=sums_up,
        confidence=confidence,
        example=example,
    )


def _tables() -> Iterator[Table]:
    """Rows below a line with the names of the columns, one of which counts and one of which is a loss."""
    for counter in ("step", "iter", "iteration", "global_step"):
        for loss in _WORDS_OF_LOSS:
            yield _make_table(
                f"csv_{counter}_{loss}", counter, loss, f"^{_NAME}(?:,{_NAME}){{1,200}}$", f"^{_CSV}$", ","
            )
            columns = rf"^\s{{0,40}}{_COLUMN}(?:(?:\t| {{2,40}}){_COLUMN}){{1,100}}$"
            yield _make_table(f"columns_{counter}_{loss}", counter, loss, columns, rf"^\s{{0,40}}{_NUMBERS}$", None)


def _make_table(name: str, counter: str, loss: str, header: str, row: str, separator: str | None) -> Table:
    return Table(
        name=name,
        words=(counter, loss),
        header=header,
        row=row,
        separator=separator,
        fields={counter: Field("iteration")},
        loss=_LOSS,
        needs=("lm_loss",),
        confidence=0.2,
    )


class PlainLoop(Detector):
    """Step lines of loops that people write themselves."""

    name = "plain_loop"
    layer = ""
    formats = (
        *_counted_by("step", "Step 100/5000 | loss 2.345 | lr 3.00e-04 | grad norm 1.23 | tokens/sec 12,345"),
        *_counted_by("global_step", "global_step=100 loss=2.345 lr=0.0003"),
        *_counted_by("iteration", "2024-05-01 12:00:00 INFO - Iteration: 100, loss: 2.345, lr: 0.0003"),
        *_counted_by("iter", "[iter 100/500] loss=2.345 acc=0.5"),
        *_counted_within_epochs(),
        *_counted_by_epoch(),
    )
    tables = tuple(_tables())


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [PlainLoop]
