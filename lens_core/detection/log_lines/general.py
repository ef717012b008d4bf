"""Reads any line that holds a counter and some numbers, where no detector's format reads it.

A line is a step where it says how far the training is (a step, an iteration, an update, a batch of an epoch) and what a
training measures (a loss, a reward). Keys and values may stand in any order and between any separators. A line that
holds the counter alone announces the step of the lines below it; a line that holds the loss alone belongs to the step
that was announced. Numbers of an evaluation keep a name of their own (`val/loss`) and are never the headline loss.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from .columns import Columns
from .numbers import parse_number
from .readings import Reading

FORMAT = "general.line"
ANNOUNCEMENT = "general.announcement"
CELL = "general.cell"
# Characters of a line that are looked at; labels and numbers of a step stand in fewer.
_MAX_CHARACTERS = 8192
_MAX_NUMBERS = 256
_MAX_STEP = 2**53

# Labels of counters, from the one that counts the whole training to those that count within an epoch.
_GLOBAL = frozenset(
    [
        "global_step",
        "global_steps",
        "globalstep",
        "global_iter",
        "global_iteration",
        "acc_iter",
        "num_updates",
        "num_update",
        "nupdates",
        "n_updates",
        "total_timesteps",
        "timesteps_total",
        "training_iteration",
        "training_step",
        "train_step",
        "train_iter",
        "step_num",
        "gstep",
    ]
)
_STEP = frozenset(
    [
        "step",
        "steps",
        "iter",
        "iters",
        "iteration",
        "iterations",
        "update",
        "updates",
        "minibatch_step",
        "optimizer_step",
    ]
)
_BATCH = frozenset(["batch", "batches", "minibatch", "batch_idx", "batch_index"])
_EPOCH = frozenset(["epoch", "epochs"])
_COUNTERS = _GLOBAL | _STEP | _BATCH | _EPOCH
_TOTALS = frozenset(["max_steps", "total_steps", "max_iter", "max_iters", "total_iters", "num_training_steps"])
# Words that may stand before a counter without changing what it counts.
_PLAIN_WORDS = frozenset(
    ["train", "training", "current", "curr", "cur", "the", "at", "in", "of", "on", "log", "metrics", "results"]
)
_TIME_WORDS = frozenset(
    ["time", "eta", "elapsed", "remaining", "date", "performace", "performance", "sec", "secs", "seconds"]
)
_EVALUATION = re.compile(r"(?i)^(val|valid|validation|eval|evaluation|test|dev)(?:[ _/.-]+(.+))?$")
# What stands before the counter of a line that is no step of a training.
_OTHER_WORK = re.compile(
    r"(?i)\b(?:val|valid|validat\w+|eval|evaluat\w+|test|testing|sanity|final|best|summary"
    r"|average|finder|trial|search|loading|loaded|resum(?:e|ed|ing)|saved?|saving|restor(?:e|ed|ing)|config|args"
    r"|skip(?:ped|ping)?|early|no|not|until|after|every|warmup|from)\b"
)
_TIMES = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d:\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d{1,2}/\d{1,2}(?:/\d{2,4})?[ ,]+(?=\d\d:)|\b\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d{1,6})?\b(?!:)"
    r"|\b(?:INFO|DEBUG|WARNING|WARN|ERROR|CRITICAL)\b|\[[\w./-]{1,80}\.py:\d{1,6}\]|\([\w.-]{1,40}:\d{1,6}\)"
)
_NUMBER = re.compile(
    r"(?<![\w.])(?<![A-Za-z]-)[-+]?(?:\d+(?:,\d{3})*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?i:nan|inf)\b)"
    r"(?:%|(?!\w)|(?=[A-Za-z\u00b5]{1,8}(?:/[A-Za-z]{1,8})?(?![\w.])))"
)
_UNIT = re.compile(r"[A-Za-z\u00b5]{1,8}(?:/[A-Za-z]{1,8})?")
_OF_TOTAL = re.compile(r"\s{0,8}(?:/|of|out of)\s{0,8}$")
_AVERAGE = re.compile(r"\s{0,4}\((?:avg:? ?)?\s{0,4}$")
_SEPARATOR = re.compile(r"[,;|(){}\[\]\t<>]|\s-+\s|\s{2,}|\*{2,}")
_LABEL = re.compile(r"[A-Za-z_][\w ./%@-]{0,80}")
# A label is a name; what has one of these is a sentence.
_PROSE = re.compile(r"(?i)\b(?:of|with|for|by|and|a|the|was|due|to|than)\b")
_PAIR = re.compile(r"\[\s{0,8}(\d{1,9})(?:\s{0,8}/\s{0,8}(\d{1,9}))?\s{0,8}\]")
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
    "average_loss",
    "mean_loss",
)
_GOALS = re.compile(
    r"(?i)reward|return|^train(?:ing)?[ _/.-]+(?:\w+[ _])?"
    r"(?:auc|acc|accuracy|error|rmse|mae|mse|logloss|ppl|perplexity|f1)\b"
)
_NO_LOSS = re.compile(r"(?i)loss[_ ]?(?:scale|weight|coef|fn|type)|(?:best|min|prev|last)[_ ]?loss|loss_?(?:func)")
# Words of lines that hold one number of a step each, below its announcement or in a table of keys and values.
_OF_BLOCKS = frozenset(
    [
        "lr",
        "current_lr",
        "learning_rate",
        "grad_norm",
        "step_time",
        "approxkl",
        "approx_kl",
        "clipfrac",
        "clip_fraction",
        "ep_rewmean",
        "ep_rew_mean",
        "ep_len_mean",
        "eplenmean",
        "explained_variance",
        "fps",
        "policy_entropy",
        "entropy",
        "rollout",
        "time_elapsed",
        "returns",
    ]
)
_COUNTER_WORDS = frozenset(word.encode() for word in _COUNTERS)
_BLOCK_WORDS = frozenset(word.encode() for word in _OF_BLOCKS | {"total_timesteps", "nupdates", "n_updates"})
_SCORES = frozenset(b"auc acc accuracy rmse mae mse logloss binary_logloss ppl perplexity".split())
_BESIDE_COUNTERS = _COUNTER_WORDS | frozenset(
    b"info debug warning root py train training time eta elapsed s ms sec seconds of total date".split()
)
# A row of a table of keys and values, or a line of one number, has no more words.
_WORDS_OF_CELLS = 4
_CELLS = re.compile(r"\s*\|(?:[^|]{1,120}\|){2,6}\s*")
# nanoGPT's estimate over held-out batches: its training loss is of other batches than those of the step.
_ESTIMATE = re.compile(r"\bstep \d{1,12}: train loss [^\s,]{1,24}, val loss [^\s,]{1,24}\s*$")
# The name of a checkpoint may hold its step and loss.
_FILE = re.compile(r"\.(?:ckpt|pth?|bin|safetensors|h5|keras|npz|pkl|distcp)\b")
_CALL = re.compile(r"[A-Za-z_]\w{0,60}\((?:[A-Za-z_]\w{0,60}=|\s*$)")
_SIGN = re.compile(r"[:=|,(\[/{]")
_EVALUATION_WORD = re.compile(r"(?i)(?<![A-Za-z])(?:val|valid|validation|eval|evaluation|test|dev)(?![A-Za-z])")
# What the dictionaries of other jobs hold: a quantised layer, a trial of a search.
_OF_OTHER_JOBS = frozenset(["layer", "module", "tid", "trial", "trial_id", "state", "misc"])


def may_count(row: bytes, words: Collection[bytes]) -> bool:
    """Whether a line may be for this reader, by its row (letters and underscores in lower case) and the row's words.

    It has a counter and something that a training measures, or one of them and hardly a word beside it.
    """
    measures = b"loss" in row or b"reward" in row or not _SCORES.isdisjoint(words)
    if not _COUNTER_WORDS.isdisjoint(words):
        return measures or sum(word not in _BESIDE_COUNTERS for word in words) <= 1
    if measures:
        return True
    return len(words) <= _WORDS_OF_CELLS and not _BLOCK_WORDS.isdisjoint(words)


class GeneralReader:
    """Reads counters and numbers; holds no state of a stream."""

    def __init__(self) -> None:
        self._columns = Columns({}, _LOSS_NAMES)

    def parse_line(self, text: str) -> Reading | None:
        """Return the step, the announcement or the numbers of a line; None where it is nothing of these."""
        text = text[:_MAX_CHARACTERS]
        if text[:200].lstrip()[:1] == "|" and _CELLS.fullmatch(text):
            return self._read_cells(text)
        if "{" in text:
            found = self._read_object(text)
            if found is not None:
                return found
            if "':" in text or '":' in text:
                return None  # a dictionary of another kind
        return self._read_pairs(text)

    def _read_cells(self, text: str) -> Reading | None:
        """A row `| key | value |` of a table of keys and values; the table is one step, and one row has its counter."""
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        pairs = [(name, cell) for name, cell in zip(cells[::2], cells[1::2], strict=False) if _LABEL.fullmatch(name)]
        numbers = [(name, cell) for name, cell in pairs if parse_number(cell) is not None]
        if not numbers or len(numbers) != len(pairs):
            return None
        counted = {
            kind: whole
            for name, cell in numbers
            if (kind := _counter_of(name.split("/")[-1])) and (whole := _whole_number(cell)) is not None
        }
        values = self._columns.read_pairs(numbers)
        iteration = counted.get("global") if "timesteps" in text else None
        return Reading(format=CELL, iteration=iteration, values=values, joins="cell", text=text)

    def _read_object(self, text: str) -> Reading | None:
        begin = text.index("{")
        end = text.rfind("}")
        if end < begin or _OTHER_WORK.search(text[:begin]):
            return None
        try:
            body = msgspec.json.decode(text[begin : end + 1])
        except (msgspec.DecodeError, UnicodeError):
            return None
        if not isinstance(body, dict) or not _OF_OTHER_JOBS.isdisjoint(body) or _is_of_evaluation(body):
            return None
        return self._judge(list(_flatten(body)), text, "")

    def _read_pairs(self, text: str) -> Reading | None:
        printed = _TIMES.sub(" ", text)
        pairs, before = _labelled(printed)
        if not any(_counter_of(name) for name, _, _ in pairs) and "[" in printed:
            pairs = [*_bracketed(printed), *pairs]
        return self._judge(pairs, text, before)

    def _judge(self, pairs: list[tuple[str, str, str]], text: str, before: str) -> Reading | None:
        counters: dict[str, tuple[int, int | None]] = {}
        measures: dict[str, str] = {}
        for name, value, total in pairs:
            kind = _counter_of(name)
            if kind:
                whole = _whole_number(value)
                if whole is not None and kind not in counters:
                    counters[kind] = (whole, _whole_number(total) if total else None)
            elif name and name not in measures and not (total and _whole_number(value) is not None):
                measures[name] = value if not total else f"{value} ({total})"
        if (before and _OTHER_WORK.search(before)) or _speaks_of_evaluation(text, measures):
            return None
        if _ESTIMATE.search(text) or _FILE.search(text) or _CALL.search(text) or _SIGN.search(text) is None:
            return None
        values = self._measured(measures, is_named=bool(counters))
        is_measured = "lm_loss" in values or any(_GOALS.search(name) and not _eval_name(name) for name in values)
        iteration, values_of_counters = _position(counters)
        if not is_measured:
            is_alone = not measures or not any("loss" in name.lower() for name in measures)
            if iteration is not None and is_alone and not _words_beside(text, pairs):
                return Reading(
                    format=ANNOUNCEMENT, iteration=iteration, values=values_of_counters, joins="announces", text=text
                )
            return self._of_block(values, counters, text)
        if not counters and "progress" in values and "{" in text:
            return Reading(format=FORMAT, values=values, text=text)
        if not counters:
            return self._of_block(values, counters, text)
        values.update(values_of_counters)
        sums_up = set(counters) == {"epoch"}
        return Reading(
            format=FORMAT, iteration=iteration, values=values, sums_up_epoch=sums_up, epoch_base=1, text=text
        )

    def _of_block(self, values: dict[str, float], counters: Mapping[str, object], text: str) -> Reading | None:
        """Numbers of the step that a line above has announced."""
        if counters or not values or _OTHER_WORK.search(text) or _words_beside(text, ()) > 2 + 4 * len(values):
            return None
        return Reading(format=FORMAT, values=values, joins="announced", text=text)

    def _measured(self, measures: Mapping[str, str], *, is_named: bool) -> dict[str, float]:
        """Stored names and values; the headline loss is `lm_loss`, numbers of an evaluation keep its name.

        Without a counter (`is_named` false) a line may be one of many of a step: only a plain `loss` is the headline.
        """
        own: list[tuple[str, str]] = []
        evaluated: dict[str, float] = {}
        for name, text in measures.items():
            kept = _eval_name(name)
            if not kept:
                own.append((name, text))
            elif (number := parse_number(text)) is not None:
                evaluated[kept] = number
        values = self._columns.read_pairs(own)
        if "lm_loss" not in values and is_named:
            named = [name for name in values if "loss" in name.lower() and not _NO_LOSS.search(name)]
            named = [name for name in named if not name.endswith("_avg")]
            if named:
                values["lm_loss"] = values.pop(named[0])
                if (average := values.pop(f"{named[0]}_avg", None)) is not None:
                    values["lm_loss_avg"] = average
        for name, number in evaluated.items():
            values.setdefault(name, number)
        return values


def _labelled(printed: str) -> tuple[list[tuple[str, str, str]], str]:
    """The (label, number, total) of a line in their order, and the words before its first counter."""
    pairs: list[tuple[str, str, str]] = []
    before = ""
    last = 0
    has_counter = False
    for match in _NUMBER.finditer(printed):
        if len(pairs) >= _MAX_NUMBERS:
            break
        between = printed[last : match.start()]
        number = match.group()
        last = match.end()
        unit = _UNIT.match(printed, last)
        if unit is not None:
            last = unit.end()
            number += unit.group()
        if pairs and _OF_TOTAL.match(between) and between.strip():
            name, value, _ = pairs[-1]
            pairs[-1] = (name, value, number)
            continue
        if pairs and pairs[-1][0] and _AVERAGE.match(between):
            if number.endswith("%"):
                continue
            pairs.append((f"{pairs[-1][0]}_avg", number, ""))
            continue
        label, rest = _label_of(between)
        if label and not has_counter and _counter_of(label):
            has_counter = True
            before = printed[: match.start() - len(between)] + rest
        pairs.append((label, number, ""))
    return [pair for pair in pairs if pair[0]], before


def _label_of(between: str) -> tuple[str, str]:
    """The label at the end of the text before a number, and what stands before the label."""
    text = between.rstrip(" \t:='\"")
    parts = _SEPARATOR.split(text)
    label = parts[-1].strip(" \t'\"-#>~")
    head = text[: len(text) - len(parts[-1])]
    for sign in ("=", ":"):
        left, found, right = label.rpartition(sign)
        if found:
            head, label = head + left + found, right.strip(" '\"")
    label = label.removesuffix(" is")
    if not _LABEL.fullmatch(label) or _PROSE.search(label):
        return "", text
    return label, head


def _normal(label: str) -> str:
    words = re.split(r"[ _]+", label.lower().strip())
    return "_".join(word for word in words if word and word not in _PLAIN_WORDS)


def _counter_of(label: str) -> str:
    """Return the counter that a label names: `global`, `step`, `batch`, `epoch`, `total`; empty if there is none."""
    plain = "_".join(label.lower().split())
    if plain in _GLOBAL:
        return "global"
    if plain in _TOTALS:
        return "total"
    plain = _normal(label)
    for kind, names in (("global", _GLOBAL), ("step", _STEP), ("batch", _BATCH), ("epoch", _EPOCH)):
        if plain in names:
            return kind
    return ""


def _bracketed(printed: str) -> Iterator[tuple[str, str, str]]:
    """Counters without a name: `[1/3][100/1000]` is an epoch and a step, `[100/1000]` a step."""
    found = list(_PAIR.finditer(printed))[:2]
    if len(found) == 2 and found[0].end() == found[1].start():
        yield "epoch", found[0].group(1), found[0].group(2) or ""
        yield "step", found[1].group(1), found[1].group(2) or ""
    elif found and found[0].group(2):
        yield "step", found[0].group(1), found[0].group(2)


def _position(counters: Mapping[str, tuple[int, int | None]]) -> tuple[int | None, dict[str, float]]:
    """The iteration, if a counter names it, and what the counters say else."""
    values: dict[str, float] = {}
    epoch = counters.get("epoch")
    if epoch is not None:
        values["epoch"] = float(epoch[0])
        if epoch[1] is not None:
            values["total_epochs"] = float(epoch[1])
    goal = counters.get("total")
    whole = counters.get("global")
    step = counters.get("step")
    batch = counters.get("batch")
    if whole is None and step is not None and (batch is not None or epoch is None):
        whole, step = step, None
    within = step or batch
    if whole is None and within is not None and epoch is None:
        whole, within = within, None
    if whole is not None:
        total = whole[1] if whole[1] is not None else (goal[0] if goal is not None else None)
        if total is not None:
            values["target_iteration"] = float(total)
        return whole[0], values
    if within is not None:
        values["step_in_epoch"] = float(within[0])
        if within[1] is not None:
            values["steps_per_epoch"] = float(within[1])
    return None, values


def _whole_number(text: str) -> int | None:
    """A counter's value; None if it is no whole number."""
    number = parse_number(text)
    if number is None or not math.isfinite(number) or not 0 <= number < _MAX_STEP or not number.is_integer():
        return None
    return int(number)


def _eval_name(label: str) -> str:
    """The stored name of an evaluation's number (`val/loss`); empty if it is not one."""
    match = _EVALUATION.match(label.strip())
    if match is None:
        return ""
    word = match.group(1).lower()
    rest = "_".join((match.group(2) or "").split()).lower()
    return f"{word}/{rest}" if rest else ""


def _speaks_of_evaluation(text: str, measures: Collection[str]) -> bool:
    """Whether a line says that it is about an evaluation elsewhere than in the labels of its numbers."""
    in_labels = sum(len(_EVALUATION_WORD.findall(name)) for name in measures)
    return len(_EVALUATION_WORD.findall(_TIMES.sub(" ", text))) > in_labels


def _words_beside(text: str, pairs: Collection[tuple[str, str, str]]) -> int:
    """Count the words of a line beside labels, levels, and those that follow a number closely."""
    labels = {word for name, _, _ in pairs for word in re.split(r"[^a-z]+", name.lower())}
    words = re.findall(r"(?<![\w.])[a-z]{3,}", _TIMES.sub(" ", text[:512]).lower().replace("_", " "))
    return sum(word not in labels and word not in _PLAIN_WORDS and word not in _TIME_WORDS for word in words)


def _flatten(body: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The numbers of a JSON object by their keys; of `{"name": "loss", "data": {"value": 3}}` the value by its name."""
    named = body.get("name") or body.get("metric") or body.get("tag")
    if isinstance(named, str):
        inner = body.get("data") if isinstance(body.get("data"), dict) else body
        if isinstance(inner, dict) and isinstance(inner.get("value"), int | float):
            yield named, repr(float(inner["value"])), ""
            for key, value in inner.items():
                if _counter_of(key) and isinstance(value, int | float) and not isinstance(value, bool):
                    yield key, repr(value), ""
            return
    for key, value in body.items():
        if isinstance(value, dict):
            is_wrapper = not prefix and key in ("data", "metrics", "values", "stats", "log", "logs", "train")
            yield from _flatten(value, prefix if is_wrapper else f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", repr(value), ""
        elif isinstance(value, str) and len(value) < 40 and parse_number(value) is not None:
            yield f"{prefix}{key}", value, ""


def _is_of_evaluation(body: Mapping[str, Any]) -> bool:
    purposes = (body.get(key) for key in ("event", "split", "mode", "phase", "stage", "type"))
    return any(isinstance(text, str) and _EVALUATION.match(text) for text in purposes)
