"""Tables that training loops print: a header with a counter and a loss, and rows of numbers below; no framework.

CSV, and columns between blanks or tabs, as pandas, fastai, Chainer, notebooks of the Trainer and many loops have them.
Lines with labels (`Step 100/5000 | loss 2.345 | lr 3e-4`) are read by the general reader of the core.
"""

from __future__ import annotations

from collections.abc import Iterator

from lens_core import Detector, Field, Table, hookimpl

_LOSS = (
    *("loss", "train_loss", "training_loss", "training loss", "train loss", "total_loss", "lm_loss"),
    *("avg_loss", "average_loss", "mean_loss", "main/loss", "trn_loss"),
)
# `loss` as a word of its own, and the spelling in which it is none.
_WORDS_OF_LOSS = ("loss", "train_loss", "trn_loss")
_COUNTERS = ("step", "iter", "iteration", "global_step", "total_train_updates", "epoch")
_NAME = r"[A-Za-z_][\w./@ -]{0,60}"
_COLUMN = r"[A-Za-z_][\w./@-]{0,60}"
# Two blanks or more stand between names of several words: `Iter       Train Loss   Remaining Time`.
_PHRASES = rf"^\s{{0,40}}{_COLUMN}(?: [\w./@-]{{1,40}})?(?: [\w./@-]{{1,40}})? {{2}}[\w./@ -]{{2,2000}}$"
_CSV = r"(?P<cells>[-+\d.eEnaif,:]{3,2000})"
_TABBED = r"(?P<cells>[-+\d.eEnaif:]{1,60}(?:\t(?:[-+\d.eEnaif:]{1,60}|No log)){1,100})"
# A time may have its unit after it: scikit-learn's `2.31s`.
_NUMBERS = r"(?P<cells>[-+\d.eEnaif][-+\d.eEnaif:smh\s]{2,2000})"


def _tables() -> Iterator[Table]:
    """Rows below a line with the names of the columns, one of which counts and one of which is a loss."""
    for counter in _COUNTERS:
        for loss in _WORDS_OF_LOSS:
            yield _table(f"csv_{counter}_{loss}", counter, loss, f"^{_NAME}(?:,{_NAME}){{1,200}}$", f"^{_CSV}$", ",")
            tabbed = rf"^{_NAME}(?:\t{_NAME}){{1,100}}$"
            yield _table(f"tabs_{counter}_{loss}", counter, loss, tabbed, rf"^{_TABBED}$", "\t")
            columns = rf"^\s{{0,40}}{_COLUMN}(?: {{2,40}}{_COLUMN}){{1,100}}\s{{0,40}}$"
            yield _table(f"columns_{counter}_{loss}", counter, loss, columns, rf"^\s{{0,40}}{_NUMBERS}$", None)
        yield _table(f"phrases_{counter}", counter, "loss", _PHRASES, rf"^\s{{0,40}}{_NUMBERS}$", "  ")


def _table(name: str, counter: str, loss: str, header: str, row: str, separator: str | None) -> Table:
    return Table(
        name=name,
        words=(counter, loss),
        header=header,
        row=row,
        separator=separator,
        fields={counter: Field("epoch" if counter == "epoch" else "iteration")},
        loss=_LOSS,
        needs=("lm_loss",),
        confidence=0.2,
        sums_up_epoch=counter == "epoch",
    )


class PlainLoop(Detector):
    """Tables of steps or epochs below a line with the names of the columns."""

    name = "plain_loop"
    layer = ""
    tables = tuple(_tables())


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [PlainLoop]
