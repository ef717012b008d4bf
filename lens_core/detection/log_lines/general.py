"""Reads any line that holds a counter and some numbers, where no detector's format reads it.

A line is a step where it says how far the training is (a step, an iteration, an update, a batch of an epoch) and what a
training measures (a loss, a reward). Keys and values may stand in any order and between any separators. A line that
holds the counter alone announces the step of the lines below it; a line that holds the loss alone belongs to the step
that was announced. Numbers of an evaluation keep a name of their own (`val/loss`) and are never the headline loss.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

from .bars import BAR_TEXT, last_bar
from .general_evaluation import (
    EVALUATION,
    is_of_evaluation,
    name_of_evaluated,
    name_repeated,
    read_evaluation,
    speaks_of_evaluation,
)
from .general_labels import (
    LABEL,
    are_settings,
    counter_of,
    find_labelled,
    find_position,
    is_placed,
    parse_whole,
    without_labels,
    without_times,
    words_beside,
)
from .general_measures import (
    COLUMNS,
    TIMES_OF_STEPS,
    count_and_measure,
    is_evaluated,
    is_measure,
    is_pace,
    measure_values,
    measures_training,
)
from .general_objects import OF_OTHER_JOBS, epochs_of_trainer, flatten_object
from .general_other_work import OTHER_WORK, why_no_step
from .general_places import RANGE, find_banner, find_batch, find_nameless, find_number, split_sections
from .general_spelling import FOREIGN_LOSSES, plain_spelling
from .numbers import parse_number
from .readings import Reading

FORMAT = "general.line"
NUMBERED = "general.numbered"
EPOCH = "general.epoch"
ANNOUNCEMENT = "general.announcement"
CELL = "general.cell"
TABLE = "general.table"
# A lone number at the beginning of a line may be its step where it has one of these.
_BESIDE_NUMBER = re.compile(r"(?i)loss|reward|\breturn\b")
# Characters of a line that are looked at; labels and numbers of a step stand in fewer.
_MAX_CHARACTERS = 8192
_OF_AN_EVALUATION = "it speaks of an evaluation, whose results are kept beside a step of the training"
_TOOK = re.compile(
    r"(?i)\b(?:took|completed in|finished in|time:?) {0,4}\d[\d.:]{0,12} ?(?:s|sec|secs|seconds|m|min)?\s{0,8}$"
)
_DURATIONS = frozenset(["took", "completed in", "finished in", "time"])
_RATE = re.compile(r"\d: {1,4}\d[\d.]{0,12} ?(?:[KMGT]i?B(?:/s)?|[munµ]?s)\s{0,8}$")
# Numbers of a block that has a reward among them; their labels speak of the training.
_MANY = 4
_MEAN_REWARD = re.compile(
    r"(?i)\s{0,8}(?:average|mean) [a-z ]{0,24}(?:reward|return)s?(?: is|:| =)? {1,4}[-+]?\d[\d.e+-]{0,16}\s*"
)
_STEPS_OF_CELLS = re.compile(r"(?i)timesteps|totalenvinteracts|env_steps")
_STEP_CELLS = frozenset(["step", "global_step", "steps", "Step"])
_CELLS = re.compile(r"\s*\|(?:[^|]{1,120}\|){2,6}\s*")
# A line of two numbers: the iteration, a tab and the loss (WaveGlow); srun's task has a blank after it.
_TWO_NUMBERS = re.compile(r"[\s:-]{0,24}(\d{1,9}):\t\s{0,4}([-+]?\d{1,9}\.\d{3,12}(?:[eE][-+]?\d{1,3})?|nan)\s*")
# The same after the counter's name: `iter 100: 2.345678`, as a loop in Lua or C prints it.
_NAMED_AND_NUMBER = re.compile(r"\s{0,8}(?:iter|iteration) {1,4}(\d{1,9}): {1,4}(\d{1,9}\.\d{4,12}|nan)\s*")
TEXT_OF_TWO_NUMBERS = ":\t"
# Of these one stands on a line without any word that is for this reader.
TEXTS_OF_NUMBERS = (TEXT_OF_TWO_NUMBERS, *FOREIGN_LOSSES)


class GeneralReader:
    """Reads counters and numbers; holds no state of a stream."""

    def parse_line(self, text: str) -> Reading | None:
        """Return the step, the announcement or the numbers of a line; None where it is nothing of these."""
        found = self._read_or_reason(text)
        return found if isinstance(found, Reading) else None

    def why_not(self, text: str) -> str:
        """Say why a line is no step for this reader; empty where it is one, or belongs to one."""
        found = self._read_or_reason(text)
        if isinstance(found, Reading):
            return _OF_AN_EVALUATION if found.format == EVALUATION else ""
        return found

    def _read_or_reason(self, text: str) -> Reading | str:
        """The reading of a line, or why there is none."""
        text = plain_spelling(text[:_MAX_CHARACTERS])
        if (banner := find_banner(text)) is not None:
            return _announced(banner, text)
        numbers = _NAMED_AND_NUMBER.fullmatch(text)
        if numbers is None and TEXT_OF_TWO_NUMBERS in text:
            numbers = _TWO_NUMBERS.fullmatch(without_times(text))
        if numbers is not None:
            return _numbered(numbers, text)
        if text[:200].lstrip()[:1] == "|" and _CELLS.fullmatch(text):
            return self._read_cells(text)
        if "{" in text and ("}" in text or text.rstrip()[-1:] != ","):  # else a dictionary with a line for each entry
            found = self._read_object(text)
            if isinstance(found, Reading):
                return found
            if "':" in text or '":' in text:
                return found or "it is a dictionary, but no JSON object"
        return self._read_pairs(text)

    def _read_cells(self, text: str) -> Reading | str:
        """A row `| key | value |` of a table of keys and values; the table is one step, and one row has its counter."""
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        pairs = [(name, cell) for name, cell in zip(cells[::2], cells[1::2], strict=False) if LABEL.fullmatch(name)]
        numbers = [(name, cell) for name, cell in pairs if parse_number(cell) is not None]
        if not pairs:
            return self._read_pairs(text)  # `| Epoch: 1/20 (12/400) | Loss: 4.1234 |`
        if not numbers or len(numbers) != len(pairs):
            return "it is a row of a table whose values are no numbers"
        counted = {
            kind: number
            for name, cell in numbers
            if (kind := counter_of(name.split("/")[-1])) and (number := parse_whole(cell)) is not None
        }
        values = COLUMNS.read_pairs(numbers)
        is_counted = _STEPS_OF_CELLS.search(text) or any(name in _STEP_CELLS for name, _ in numbers)
        iteration = counted.get("global", counted.get("step")) if is_counted else None
        return Reading(format=CELL, iteration=iteration, values=values, joins="cell", text=text)

    def _read_object(self, text: str) -> Reading | str:
        begin = text.index("{")
        end = text.rfind("}")
        if end < begin:
            return ""
        if other := OTHER_WORK.search(text[:begin]):
            return f"`{other.group()}` stands before its object: that is other work than a training's step"
        try:
            body = msgspec.json.decode(text[begin : end + 1].replace("'", '"'))  # Python prints them so
        except (msgspec.DecodeError, UnicodeError):
            return ""
        if not isinstance(body, dict):
            return ""
        if others := sorted(OF_OTHER_JOBS.intersection(body)):
            return f"`{others[0]}` is among its keys: that is other work than a training's step"
        if is_of_evaluation(body):
            return (
                read_evaluation(text, *count_and_measure(list(flatten_object(body))))
                or "it says that it is of an evaluation"
            )
        before = [pair for pair in find_labelled(without_times(text[:begin]))[0] if counter_of(pair[0])]
        return self._judge([*before, *flatten_object(body)], text, "")

    def _read_pairs(self, text: str) -> Reading | str:
        printed = RANGE.sub(r"[\1]", without_times(text))
        pairs, before = find_labelled(printed)
        if len(sections := split_sections(printed)) > 1:
            pairs = [
                (f"{word} {name}" if word else name, number, total)
                for word, part in sections
                for name, number, total in find_labelled(part)[0]
            ]
        if (batch := find_batch(printed)) is not None and {counter_of(name) for name, _, _ in pairs} - {""} == {
            "epoch"
        }:
            pairs.append(batch)
        pairs = name_repeated(pairs)
        if any(counter_of(name) and parse_whole(value) is not None for name, value, _ in pairs):
            return self._judge(pairs, text, before)
        if nameless := list(find_nameless(printed)):
            return self._judge([*nameless, *pairs], text, before)
        measure = next((match for name, _, _ in pairs if (match := _BESIDE_NUMBER.search(name)) is not None), None)
        number = find_number(printed) if measure is not None else None
        if number is None or measure is None or OTHER_WORK.search(printed[: printed.index(measure.group())]):
            return self._judge(pairs, text, before)
        found = self._judge([number, *pairs], text, before)
        if isinstance(found, Reading) and found.format == FORMAT and not number[2]:
            found.format = NUMBERED
        return found

    def _judge(self, pairs: list[tuple[str, str, str]], text: str, before: str) -> Reading | str:
        counters, measures = count_and_measure(pairs)
        is_of_evaluation_alone = is_evaluated(measures, has_counter=bool(counters))
        if is_of_evaluation_alone or speaks_of_evaluation(text, measures):
            return read_evaluation(text, counters, measures) or "it speaks of an evaluation"
        if _is_epoch_alone(text, pairs):
            return Reading(format=ANNOUNCEMENT, values=find_position(counters)[1], joins="epoch", text=text)
        results = (name for name in measures if name_of_evaluated(name) and not counter_of(name.split()[-1]))
        if reason := why_no_step(text, without_labels(before, results), measures):
            return reason
        bar = last_bar(text) if set(counters) <= {"epoch"} else None
        if bar is not None and not counters and OTHER_WORK.search(text[: text.index(BAR_TEXT)]):
            bar = None
        done = epochs_of_trainer(pairs) if "{" in text and not counters and "learning_rate" in measures else None
        is_counted = bool(counters) or bar is not None or done is not None
        values = measure_values(measures, is_named=is_counted or any(name.lower() == "progress" for name in measures))
        if done is not None:
            values["epoch"] = done
        iteration, values_of_counters = find_position(counters)
        if "lm_loss" not in values and not measures_training({*values, *TIMES_OF_STEPS & measures.keys()}, counters):
            if _announces(text, pairs, counters, measures):
                return Reading(
                    format=ANNOUNCEMENT, iteration=iteration, values=values_of_counters, joins="announces", text=text
                )
            return self._of_block(values, counters, measures, text)
        if bar is not None and bar == counters.get("epoch") and text.count(f"{bar[0]}/{bar[1]}") == 1:
            bar = None  # `Epochs:  10%|#   | 10/100` counts the epochs
        if bar is not None and bar[1]:
            values.update(values_of_counters)
            values.update(step_in_epoch=float(bar[0]), steps_per_epoch=float(bar[1]))
            return Reading(format=FORMAT, values=values, epoch_base=1, text=text)
        if done is not None or (not counters and ("progress" in values and "{" in text)) or "Progress" in values:
            return Reading(format=FORMAT, values=values, text=text)
        if not counters:
            return self._of_block(values, counters, measures, text)
        values.update(values_of_counters)
        sums_up = set(counters) == {"epoch"}
        return Reading(
            format=EPOCH if sums_up else FORMAT,
            iteration=iteration,
            values=values,
            sums_up_epoch=sums_up,
            epoch_base=1,
            text=text,
        )

    def _of_block(
        self,
        values: dict[str, float],
        counters: Mapping[str, tuple[int, int | None]],
        measures: Mapping[str, str],
        text: str,
    ) -> Reading | str:
        """Numbers of the step that a line above has announced."""
        if counters:
            evaluated = {name: measures[name] for name in measures if name_of_evaluated(name)}
            no_measure = "it counts steps, but has no loss, reward or other measure of a training"
            return read_evaluation(text, counters, evaluated) or no_measure
        if not values:
            return "no number on it has a name"
        if not any(is_measure(name.lower()) for name in (*measures, *values)):
            return "it has no counter of steps, and measures nothing of a training"
        own = text if "lm_loss" not in values else without_labels(text, filter(name_of_evaluated, measures))
        if len(values) >= _MANY and measures_training(values, {}):
            own = without_labels(own, measures)
        if len(values) == 1 and _MEAN_REWARD.fullmatch(text) is not None:  # `average episode rewards is -131.5`
            own = without_labels(own, measures)
        if other := OTHER_WORK.search(own):
            return f"it has no counter of steps, and `{other.group()}` speaks of other work"
        if words_beside(text, ()) > 2 + 4 * len(values):
            return "it has no counter of steps, and more words than numbers"
        return Reading(format=FORMAT, values=values, joins="announced", text=text)


def _is_epoch_alone(text: str, pairs: Collection[tuple[str, str, str]]) -> bool:
    """Whether a line is the number of an epoch and nothing else: its steps or its loss stand on lines below.

    It may say how long the epoch took: `Epoch 1 of 500 took 1.858s`.
    """
    is_timed = _TOOK.search(text) is not None
    if is_timed:
        pairs = [pair for pair in pairs if pair[0].lower() not in _DURATIONS]
    is_one = len(pairs) == 1 and all(
        counter_of(name) == "epoch"
        and not name.lower().endswith("epochs")
        and number.isdigit()
        and (is_timed or not total)
        for name, number, total in pairs
    )
    return is_one and BAR_TEXT not in text and not words_beside(_TOOK.sub(" ", text), pairs)


def _numbered(numbers: re.Match[str], text: str) -> Reading:
    """The step of a line of two numbers."""
    iteration, loss = numbers.groups()
    return Reading(format=NUMBERED, iteration=int(iteration), values={"lm_loss": float(loss)}, text=text)


def _announced(banner: tuple[str, str, str], text: str) -> Reading:
    """The announcement of a banner: of an epoch, or of a step."""
    counters = {counter_of(banner[0]): (int(banner[1]), int(banner[2]) if banner[2] else None)}
    iteration, values = find_position(counters)
    joins = "epoch" if iteration is None else "announces"
    return Reading(format=ANNOUNCEMENT, iteration=iteration, values=values, joins=joins, text=text)


def _announces(
    text: str,
    pairs: Collection[tuple[str, str, str]],
    counters: Mapping[str, tuple[int, int | None]],
    measures: Mapping[str, str],
) -> bool:
    """Whether a line without a measure names the step of those below it, with hardly a word beside its counters."""
    if not counters.keys() & {"global", "step", "batch"} or any("loss" in name.lower() for name in measures):
        return False
    if are_settings(pairs) and not any(is_pace(name) for name in measures):
        return False
    if "global" in counters and (is_placed({"global": counters["global"]}) or "epoch" in counters):
        return True
    most = 1 if is_placed(counters) and "epoch" in counters else 0
    return words_beside(text, pairs) <= most and _RATE.search(text) is None
