"""Reads any line that holds a counter and some numbers, where no detector's format reads it.

A line is a step where it says how far the training is (a step, an iteration, an update, a batch of an epoch) and what a
training measures (a loss, a reward). Keys and values may stand in any order and between any separators. A line that
holds the counter alone announces the step of the lines below it; a line that holds the loss alone belongs to the step
that was announced. Numbers of an evaluation keep a name of their own (`val/loss`) and are never the headline loss.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from ...plugin_api.log_formats import Field
from .bars import BAR_TEXT, last_bar
from .columns import Columns
from .general_evaluation import EVALUATION, is_of_evaluation, name_of_evaluated, read_evaluation, speaks_of_evaluation
from .general_labels import (
    LABEL,
    are_settings,
    counter_of,
    counts_episodes,
    find_labelled,
    find_position,
    is_placed,
    is_short_counter,
    parse_whole,
    without_labels,
    without_times,
    words_beside,
)
from .general_objects import OF_OTHER_JOBS, epochs_of_trainer, flatten_object
from .general_other_work import OTHER_WORK, why_no_step
from .general_places import RANGE, find_batch, find_nameless, find_number, split_sections
from .general_words import OF_BLOCKS
from .numbers import parse_number
from .readings import Reading

FORMAT = "general.line"
NUMBERED = "general.numbered"
EPOCH = "general.epoch"
ANNOUNCEMENT = "general.announcement"
CELL = "general.cell"
# A lone number at the beginning of a line may be its step where it has one of these.
_BESIDE_NUMBER = re.compile(r"(?i)loss|reward")
# Characters of a line that are looked at; labels and numbers of a step stand in fewer.
_MAX_CHARACTERS = 8192
_OF_AN_EVALUATION = "it speaks of an evaluation, whose results are kept beside a step of the training"
# Epochs from here on are times.
_UNIX_TIMES = 10**8
_LOSS_NAMES = (
    "loss",
    "train_loss",
    "training_loss",
    "total_loss",
    "loss/total",
    "loss/train/total",
    "train/loss",
    "main/loss",
    "lm_loss",
    "avg_loss",
    "avg.loss",
    "average_loss",
    "mean_loss",
)
# Measures of a training that are no loss by name; beside a counter of steps they make a step of a line.
_LOSS_LIKE = re.compile(r"(?i)(?<![a-z])(?:xent|nll|ce|bce|mse|cost|elbo|cross[-_ ]?entropy)(?![a-z])|cross_?entropy")
_PERPLEXITY = re.compile(r"(?i)(?<![a-z])(?:ppl|perplexity|bpc|bpd|bits[-_ ]per[-_ ]\w{1,16})(?![a-z])")
# A score is of the training where the speed or the learning rate of a training stands beside it.
_SCORE = re.compile(r"(?i)(?<![a-z\d])(?:acc|accuracy|top[-_]?[15]|auc|f1|rmse|mae)(?![a-z\d])|(?<=[a-z_])acc$")
_ERROR = re.compile(r"(?i)(?:train(?:ing)?[ _])?err(?:or)?")
# A step whose line holds times alone, where the loss is not printed.
_TIMES_OF_STEPS = frozenset(["train_time"])
_STORED_PACES = frozenset(["learning_rate", "samples_per_second", "tokens_per_second", "elapsed_time_per_iteration_ms"])
_TOOK = re.compile(
    r"(?i)\b(?:took|completed in|finished in|time:?) {0,4}\d[\d.:]{0,12} ?(?:s|sec|secs|seconds|m|min)?\s{0,8}$"
)
_DURATIONS = frozenset(["took", "completed in", "finished in", "time"])
_RATE = re.compile(r"\d: {1,4}\d[\d.]{0,12} ?(?:[KMGT]i?B(?:/s)?|[munµ]?s)\s{0,8}$")
_PACE = re.compile(
    r"(?i)^(?:lr|learning[_ ]rate|speed|ips|fps(?: total)?|sps|throughput"
    r"|(?:tokens?|samples?|words?|tok|imgs?|images?)[ _]?(?:/|per[ _])[ _]?s(?:ec(?:ond)?)?)$"
)
_GOALS = re.compile(
    r"(?i)reward|return|^kimg$|^train(?:ing)?[ _/.-]+(?:\w+[ _])?"
    r"(?:auc|acc|accuracy|error|rmse|mae|mse|logloss|ppl|perplexity|f1)\b"
)
_MEAN_REWARD = re.compile(
    r"(?i)\s{0,8}(?:average|mean) [a-z ]{0,24}(?:reward|return)s?(?: is|:| =)? {1,4}[-+]?\d[\d.e+-]{0,16}\s*"
)
_NO_LOSS = re.compile(r"(?i)loss[_ ]?(?:scale|weight|coef|fn|type)|(?:best|min|prev|last)[_ ]?loss|loss_?(?:func)")
_STEPS_OF_CELLS = re.compile(r"(?i)timesteps|totalenvinteracts|env_steps")
_STEP_CELLS = frozenset(["step", "global_step", "steps", "Step"])
_CELLS = re.compile(r"\s*\|(?:[^|]{1,120}\|){2,6}\s*")
_DOCUMENT = re.compile(r"(?i)\.(?:txt|json|csv|log|ya?ml|md|html|png)$")
# A line of two numbers: the iteration, a tab and the loss (WaveGlow); srun's task has a blank after it.
_TWO_NUMBERS = re.compile(r"[\s:-]{0,24}(\d{1,9}):\t\s{0,4}([-+]?\d{1,9}\.\d{3,12}(?:[eE][-+]?\d{1,3})?|nan)\s*")
# The same after the counter's name: `iter 100: 2.345678`, as a loop in Lua or C prints it.
_NAMED_AND_NUMBER = re.compile(r"\s{0,8}(?:iter|iteration) {1,4}(\d{1,9}): {1,4}(\d{1,9}\.\d{4,12}|nan)\s*")
TEXT_OF_TWO_NUMBERS = ":\t"


class GeneralReader:
    """Reads counters and numbers; holds no state of a stream."""

    def __init__(self) -> None:
        self._columns = Columns({"l.r.": Field("learning_rate")}, _LOSS_NAMES)

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
        text = text[:_MAX_CHARACTERS]
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
        values = self._columns.read_pairs(numbers)
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
                read_evaluation(text, *_count_and_measure(flatten_object(body)))
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
        counters, measures = _count_and_measure(pairs)
        is_evaluated = _is_evaluated(measures, has_counter=bool(counters))
        if is_evaluated or speaks_of_evaluation(text, measures):
            return read_evaluation(text, counters, measures) or "it speaks of an evaluation"
        if _is_epoch_alone(text, pairs):
            return Reading(format=ANNOUNCEMENT, values=find_position(counters)[1], joins="epoch", text=text)
        if reason := why_no_step(text, before, measures):
            return reason
        bar = last_bar(text) if set(counters) <= {"epoch"} else None
        if bar is not None and not counters and OTHER_WORK.search(text[: text.index(BAR_TEXT)]):
            bar = None
        done = epochs_of_trainer(pairs) if "{" in text and not counters and "learning_rate" in measures else None
        is_counted = bool(counters) or bar is not None or done is not None
        values = self._measured(measures, is_named=is_counted or any(name.lower() == "progress" for name in measures))
        if done is not None:
            values["epoch"] = done
        iteration, values_of_counters = find_position(counters)
        if "lm_loss" not in values and not _measures_training({*values, *_TIMES_OF_STEPS & measures.keys()}, counters):
            is_alone = not any("loss" in name.lower() for name in measures) and not are_settings(pairs)
            is_whole = is_placed({"global": counters["global"]}) if "global" in counters else False
            if iteration is not None and is_alone and (is_whole or not _says_more(text, pairs)):
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
        if not any(_is_measure(name.lower()) for name in (*measures, *values)):
            return "it has no counter of steps, and measures nothing of a training"
        own = text if "lm_loss" not in values else without_labels(text, filter(name_of_evaluated, measures))
        if len(values) == 1 and _MEAN_REWARD.fullmatch(text) is not None:  # `average episode rewards is -131.5`
            own = without_labels(own, measures)
        if other := OTHER_WORK.search(own):
            return f"it has no counter of steps, and `{other.group()}` speaks of other work"
        if words_beside(text, ()) > 2 + 4 * len(values):
            return "it has no counter of steps, and more words than numbers"
        return Reading(format=FORMAT, values=values, joins="announced", text=text)

    def _measured(self, measures: Mapping[str, str], *, is_named: bool) -> dict[str, float]:
        """Stored names and values; the headline loss is `lm_loss`, numbers of an evaluation keep its name.

        Without a counter (`is_named` false) a line may be one of many of a step: only a plain `loss` is the headline.
        """
        own: list[tuple[str, str]] = []
        evaluated: dict[str, float] = {}
        for name, text in measures.items():
            kept = name_of_evaluated(name)
            if not kept:
                own.append((name, text))
            elif (number := parse_number(text)) is not None:
                evaluated[kept] = number
        values = self._columns.read_pairs(own)
        if "lm_loss" not in values and is_named:
            named = [name for name in values if "loss" in name.lower() and not _NO_LOSS.search(name)]
            named = [name for name in named if not name.endswith("_avg")]
            named = named or [name for name in values if _LOSS_LIKE.search(name) and not name.endswith("_avg")]
            if named:
                values["lm_loss"] = values.pop(named[0])
                if (average := values.pop(f"{named[0]}_avg", None)) is not None:
                    values["lm_loss_avg"] = average
        for name, number in evaluated.items():
            values.setdefault(name, number)
        return values


def _count_and_measure(
    pairs: Iterable[tuple[str, str, str]],
) -> tuple[dict[str, tuple[int, int | None]], dict[str, str]]:
    """Divide the labelled numbers of a line into counters, with their totals, and what was measured."""
    counters: dict[str, tuple[int, int | None]] = {}
    measures: dict[str, str] = {}
    rough: dict[str, tuple[int, int | None]] = {}
    episode: tuple[int, int | None] | None = None
    for name, value, total in pairs:
        kind = counter_of(name) or ("step" if total and is_short_counter(name) else "")
        if kind == "epoch" and not total and name.lower().endswith("epochs"):  # how many there are
            continue
        if counts_episodes(name) and episode is None and (number := parse_whole(value)) is not None:
            episode = number, parse_whole(total) if total else None
        if kind:
            number = parse_whole(value) if value[-1:] != "%" else None  # `Epochs: 10%|#   | 10/100`
            if kind == "epoch" and number is not None and number >= _UNIX_TIMES:
                continue
            known = rough if value[-1:].isalpha() else counters  # `12k` may stand beside what counts exactly
            if number is not None and kind not in known:
                known[kind] = (number, parse_whole(total) if total else None)
        elif (
            name
            and name not in measures
            and not _DOCUMENT.search(name)
            and not (total and parse_whole(value) is not None)
        ):
            measures[name] = value if not total else f"{value} ({total})"
    if episode is not None and not counters and not rough and any(_GOALS.search(name) for name in measures):
        return {"step": episode}, {name: text for name, text in measures.items() if not counts_episodes(name)}
    return (counters if counters.keys() - {"epoch"} else {**rough, **counters}), measures


def _is_evaluated(measures: Mapping[str, str], *, has_counter: bool) -> bool:
    """Whether all numbers are of an evaluation: each says so, or the first one of a line without a counter does."""
    own = [name.lower() for name in measures if not name_of_evaluated(name)]
    if not own:
        return bool(measures)
    begins = name_of_evaluated(next(iter(measures))) != ""
    return begins and not has_counter and not any("loss" in name or name.startswith("train") for name in own)


def _measures_training(values: Collection[str], counters: Mapping[str, tuple[int, int | None]]) -> bool:
    """Whether numbers other than a loss are what a training measures."""
    own = [name for name in values if not name_of_evaluated(name)]
    if counters.get("epoch", (0, None))[1] is not None and "frames" in own and any(map(_PACE.match, own)):
        return True
    if any(_GOALS.search(name) for name in own):
        return True
    if is_placed(counters) and any(_PERPLEXITY.search(name) for name in own):
        return True
    if is_placed(counters) and "epoch" in counters and any(_ERROR.fullmatch(name) for name in own):
        return True
    if "epoch" in counters and "step" in counters and ("learning_rate" in own or {"time", "data"} <= set(own)):
        return True
    is_timed = len(own) == len(values) and not _TIMES_OF_STEPS.isdisjoint(own)
    if (is_timed or "learning_rate" in own) and counters.get("step", (0, None))[1] is not None:
        return True
    has_pace = any(_PACE.match(name) or name in _STORED_PACES for name in own)
    return has_pace and any(_SCORE.search(name) or _PERPLEXITY.search(name) for name in own)


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


def _says_more(text: str, pairs: Collection[tuple[str, str, str]]) -> bool:
    """Whether a line has words beside its labels, or measures something: `iter 6: 12.5 MB/s`."""
    return bool(words_beside(text, pairs)) or _RATE.search(text) is not None


def _is_measure(name: str) -> bool:
    """Whether a number of this name is something that a training measures."""
    patterns = (_GOALS, _SCORE, _LOSS_LIKE, _PERPLEXITY, _PACE)
    is_named = "loss" in name or "entropy" in name or name in OF_BLOCKS or name in _STORED_PACES
    return is_named or any(pattern.search(name) for pattern in patterns)
