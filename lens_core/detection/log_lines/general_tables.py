"""Tables of steps or epochs, for the general reader: rows of numbers below a header that names a counter and a loss.

Columns stand between pipes, tabs or blanks. A header may have a second line (`|  Mini-batch  |` above `|  Loss  |`), a
mark before it (`#`, `[  10% ]`) and pipes of a box; a cell may be a list, whose first number counts. One that counts
epochs and batches is none: the same header stands above the batches of an evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .general import EPOCH, TABLE
from .general_evaluation import is_word_of_evaluation, name_of_evaluated
from .general_labels import counter_of, find_position
from .general_measures import count_and_measure, is_evaluated, measure_values
from .general_spelling import plain_spelling
from .numbers import parse_number
from .readings import Reading

_MAX_CHARACTERS = 2048
_LINE = re.compile(r"[\s|+=:-]{3,2048}")
_LOGGER = re.compile(r"^[^|]{0,60}\d\d:\d\d[^|]{0,40}(?=\|)")
_MARK = re.compile(r"^\s{0,8}(?:#\s|\[[^\[\]]{0,20}\]\s)")
_GAPS = re.compile(r"\s{2,}")
_NAME = re.compile(r"[A-Za-z_#(][\w ./%()@:+'-]{0,60}")
_SHORT_COUNTERS = frozenset(["itn", "iter", "ep", "it"])
_MEASURE = re.compile(r"(?i)loss|deviance|(?<![a-z])(?:nll|return|reward)(?![a-z])")
# Columns of other work: solvers, trials of a search, evaluations of many tasks.
_OTHER_WORK = re.compile(
    r"(?i)(?:^|[ _|])(?:trial|status|residual|gradient|grad|objective|inf_pr|tr_ratio|primal|dual|pri res|gap|task"
    r"|loc|pid)(?:$|[ _|])"
)
_LIST = re.compile(r"\[\s{0,4}([-+.\d][^,\s\]]{0,30})(?:[,\s][^\]]{0,400})?\]")
_FEWEST = 3


class GeneralTable:
    """Recognises headers and reads the rows below them; holds no state of a stream."""

    name = TABLE

    def header(self, text: str, above: Sequence[str] = ()) -> tuple[str, ...] | None:
        """The names of the columns, if a line is a header; `above` are those of the first line of a header."""
        cells = _cells_of_header(text)
        if len(cells) < (_FEWEST if "\t" not in text.strip() else 2) or not all(
            not cell or _NAME.fullmatch(cell) for cell in cells
        ):
            return None
        if len(cells) == len(above) and "|" in text and not any(_counts(cell) for cell in cells):
            return tuple(f"{first} {second}".strip() for first, second in zip(above, cells, strict=True))
        kinds = {kind for cell in cells if (kind := _counts(cell))}
        own = [cell for cell in cells if not name_of_evaluated(cell)]
        measures = any(_MEASURE.search(cell) for cell in own)
        if any(_OTHER_WORK.search(cell) for cell in cells) or {"epoch", "batch"} <= kinds:
            return None
        if not kinds:  # rows are counted
            is_of_loop = "\t" in text.strip() and any(cell.lower() in ("lr", "learning rate") for cell in cells)
            return tuple(cells) if measures and is_of_loop else None
        is_first_line = "|" in text and len(kinds) > 1  # its measures may be named on the second
        return tuple(cells) if measures or is_first_line else None

    def read_row(self, text: str, names: tuple[str, ...]) -> Reading | None:
        """The step of a row under these names; None if the line is none."""
        if len(text) > _MAX_CHARACTERS or _LINE.fullmatch(text):
            return None
        cells = _cells_of_row(text, len(names))
        if len(cells) != len(names) or any(is_word_of_evaluation(cell) for cell in cells):
            return None
        pairs = [
            (_counter_name(name), listed.group(1) if (listed := _LIST.fullmatch(cell)) is not None else cell, "")
            for name, cell in zip(names, cells, strict=True)
        ]
        pairs = [(name, number, "") for name, number, _ in pairs if parse_number(number) is not None]
        counters, measures = count_and_measure(pairs)
        is_counted = any(_counts(name) for name in names)
        if is_counted != bool(counters) or not any(_MEASURE.search(name) for name in measures):
            return None
        if is_evaluated(measures, has_counter=True):
            return None
        iteration, values = find_position(counters)
        sums_up = set(counters) == {"epoch"}
        return Reading(
            format=EPOCH if sums_up else TABLE,
            iteration=iteration,
            values={**measure_values(measures), **values},
            sums_up_epoch=sums_up,
            text=text,
        )


def _cells_of_header(text: str) -> list[str]:
    text = _plain(text).strip()
    if "|" in text.strip("|"):
        return [cell.strip() for cell in text.strip("|").split("|")]
    if "\t" in text:
        return [part.strip() for part in text.split("\t")]
    if "," in text:
        return text.split(",")
    parts = _GAPS.split(text)
    # A single blank between all names, or between none.
    return [part.strip() for part in parts] if len(parts) >= _FEWEST else text.split()


def _cells_of_row(text: str, count: int) -> list[str]:
    text = _plain(text).strip()
    if "|" in text.strip("|"):
        return [cell.strip() for cell in text.strip("|").split("|")]
    splits = (text.split("\t"), text.split(","), _GAPS.split(text), text.split())
    for cells in splits if count >= _FEWEST else splits[:1]:
        if len(cells) == count:
            return [cell.strip() for cell in cells]
    return []


def _plain(text: str) -> str:
    text = _MARK.sub("", _LOGGER.sub("", text[:_MAX_CHARACTERS], count=1), count=1)
    return plain_spelling(text) if not text.isascii() else text


def _counts(name: str) -> str:
    return counter_of(_counter_name(name))


def _counter_name(name: str) -> str:
    lowered = name.lower().strip(". ")
    return "iter" if lowered in _SHORT_COUNTERS else name
