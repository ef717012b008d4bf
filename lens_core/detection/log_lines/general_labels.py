"""The labels, numbers and counters of a line, for the general reader: what counts, and how far it is."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from .numbers import parse_number
from .readings import Reading

_MAX_NUMBERS = 256
# Labels and texts between numbers are remembered up to this length.
_KEPT_CHARACTERS = 100
# `globalStep`
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_SHORTEST_COUNTER, _COUNTER_CHARACTERS = len("step 1"), 200
_MAX_STEP = 2**53
# Labels of counters, from the one that counts the whole training to those that count within an epoch.
_GLOBAL = frozenset(
    """
    global_step global_steps globalstep global_iter global_iteration acc_iter num_updates num_update nupdates
    n_updates total_timesteps timesteps_total training_iteration training_step step_i train_step train_iter
    env_step env_steps total_env_steps
    total_numsteps total_num_timesteps t_env total_t num_timesteps totalenvinteracts step_num gstep total_train_updates
    learner_steps batches_seen iterations_done
    """.split()
)
_STEP = frozenset(
    """
    step steps iter iters iteration iterations update updates minibatch_step optimizer_step up. tick itr it
    """.split()
)
_BATCH = frozenset(
    "batch batches minibatch batch_idx batch_index epochiter epoch_iter epoch_step iter_in_epoch".split()
)
_EPOCH = frozenset(["epoch", "epochs", "ep", "ep.", "pass"])
# These count only where their total comes after them: `i = 10 / 17800`.
SHORT_COUNTERS = frozenset(["i", "idx", "n", "data"])
_EPISODES = frozenset(["episode", "episodes", "episode num", "i_episode", "episode number"])
_FRAMES = frozenset(["frame", "frames", "num steps"])
# Of federated training; a game counts rounds, too.
_ROUNDS = frozenset(["round", "communication round", "global round"])
COUNTERS = _GLOBAL | _STEP | _BATCH | _EPOCH
_TOTALS = frozenset(["max_steps", "total_steps", "max_iter", "max_iters", "total_iters", "num_training_steps"])
# Words that may stand before a counter without changing what it counts.
_PLAIN_WORDS = frozenset(
    """
    train training learning current curr cur the at in of on log metrics results
    finished completed processed starting beginning running recent stats statistics begin ending
    """.split()
)
_TIME_WORDS = frozenset(
    """
    time eta elapsed remaining date performace performance sec secs seconds output per
    utc gmt
    """.split()
)
_TIMES = re.compile(
    r"\b[IWEF]\d{4}(?:\d{4})? \d\d:\d\d:\d\d(?:\.\d{1,9}\s{1,8}\d{1,9})?\b|\b\d{1,3}%\|[^|\r\n]{0,200}\|"
    r"|^\W{0,4}(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? (?:[A-Z][a-z]{2,8} {1,2}\d{1,2}|\d{1,2} [A-Z][a-z]{2,8})"
    r"(?: \d{4})? \d\d:\d\d:\d\d(?: \d{4})?\b"
    r"|\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d:\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d{1,2}/\d{1,2}(?:/\d{2,4})?[ ,]+(?=\d\d:)|\b\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d{1,6})?\b(?!:)"
    r"|\[(?:INFO|DEBUG|WARNING|ERROR) \d\d:\d\d:\d\d\] (?:[a-z]\w{0,40} )?"
    r"|\b(?:INFO|DEBUG|WARNING|WARN|ERROR|CRITICAL|SUCCESS)\b(?::[\w.]{1,60}:(?=[A-Za-z{\[]))?"
    r"|\((?!(?i:(?:global[ _])?steps?|iter(?:ation)?s?|epochs?|updates?|batch)[: ])[\w.-]{1,40}[: ]\d{1,6}\)"
    r"|\b\d{1,9}(?:\.\d{1,9})? ?m?s/\d{1,6} ?[a-z]{1,8}\b"
    # Julia's blocks of log lines, and its numbers of 32 bits.
    r"|^[\u2502\u250c\u2514][ \u2500]?(?:Info:|Warning:)?|(?<=\d)f0\b"
)
_SOURCE = re.compile(r"(?<![\w./-])\[?[\w./-]{1,80}\.(?:py|cc|cpp|cu|h): ?\d{1,6}\]?")
_ENDINGS_OF_SOURCE = (".py:", ".cc:", ".cpp:", ".cu:", ".h:")
_NUMBER = re.compile(
    r"(?<![\w.@])(?<![A-Za-z]-)[-+]?(?:\d+(?:,\d{3})*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?i:nan|inf)\b)"
    r"(?:%|(?!\w)|(?=[A-Za-z\u00b5]{1,8}(?:/[A-Za-z]{1,8})?(?![\w.])))"
)
_UNIT = re.compile(r"[A-Za-z\u00b5]{1,8}(?:/[A-Za-z]{1,8})?|/(?:it|iter|step|batch|s|sec)\b")
_OF_TOTAL = re.compile(r"\s{0,8}(?:/|of|out of)\s{0,8}$")
_AVERAGE = re.compile(r"\s{0,4}\((?:avg:? ?)?\s{0,4}$")
_DEVIATION = re.compile(r"\s{0,4}(?:\u00b1|\+/-|\+-)\s{0,4}$")
# `train loss 100 2.31`: a step without a name between a loss and its value.
_LOSS_BEFORE = re.compile(r"(?i)(?:^|[\s,;|])[\w ]{0,40}loss\s{1,8}$")
# `train cross_entropy |  3.21`
_MEASURE_AND_BAR = re.compile(r"(?i)([\w ]{0,40}(?:loss|entropy|accuracy|perplexity|reward))\s{1,16}\|\s{0,16}$")
_SEPARATOR = re.compile(r"[,;|(){}\[\]\t<>]|\.\s(?=\S)|\s[:/]\s|\s-+\s|\s{2,}|\*{2,}|(?<=[\w!.])[\"']\s")
LABEL = re.compile(r"[A-Za-z_][\w ./%@-]{0,80}")
# A label is a name; what has one of these is a sentence.
_PROSE = re.compile(r"(?i)\b(?:of|with|for|by|and|a|the|was|due|to|than|0x[\da-f]{1,32})\b")
# `Iteration 100: with minibatch training loss = 2.31 and accuracy of 0.11`
_TOLD = re.compile(
    r"(?:.{0,40}\s)?((?<=with )(?:[\w-]{1,16} ){1,3}LOSS|(?<=and )(?:[\w-]{1,16} ){0,3}LOSS)(?: of)?$".replace(
        "LOSS", "(?i:loss|accuracy|acc|error|perplexity)"
    )
)
# `train loss at step 100: 5.12`: the counter stands within the label of the number after it.
_WITHIN = re.compile(r"(?i)(.{0,60}\S) (?:at|after|in) (?:global )?(step|iteration|iter|update|epoch)$")
# `eval in step: 1000, loss: 3.01`: an evaluation names the step of the training.
_EVALUATED_AT = re.compile(r"(?:eval|val|valid|test)\w{0,8} (?:in|at|after|for) (?=[a-z])")
# `('epoch', 3, 'loss', 2.31)`: what Python 2's print makes of them.
_QUOTED = re.compile(r"['\"]([A-Za-z_][\w ./-]{0,60}?)[ :=]{0,3}['\"], $")
# The unit of the number before a label: `data_time: 0.0012 s/iter total_throughput: 77.6 samples/s lr: 1.00e-04`.
_UNIT_BEFORE = re.compile(
    r"^(?:m?s|samples|tokens|tok|words|imgs?|images|it|steps)/(?:s|sec|it|iter|step|batch) (?=[A-Za-z])"
)
# A picture before a label.
_SYMBOLS = re.compile(r"^[^\x00-\x7f\s][^\x00-\x7f]{0,20}\s")
_OPENED = re.compile(r"\s{0,4}\]?\s{0,4}\(\s{0,8}")
_SHARE_OF_EPOCH = re.compile(r"\s{0,4}/\s{0,4}\d{1,12}\s{0,4}\)")
_BESIDE = re.compile(r"\s{0,4}\]?\s{0,4}\[\s{0,8}")
# `Raw Acc (0.39, 2.49)`: several numbers of one measure.
_SEVERAL = re.compile(r"(?i)(?:acc|accuracy|loss|score)$")


@lru_cache(maxsize=32)
def without_times(text: str) -> str:
    """A line with blanks in the place of dates, times, levels, places in source files and the like."""
    if any(ending in text for ending in _ENDINGS_OF_SOURCE):
        text = _SOURCE.sub(" ", text)
    return _TIMES.sub(" ", text)


def find_labelled(printed: str) -> tuple[list[tuple[str, str, str]], str]:
    """The (label, number, total) of a line in their order, and the words before its first counter."""
    pairs: list[tuple[str, str, str]] = []
    before = ""
    last = 0
    has_counter = False
    awaited = ""
    is_open = False
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
        if pairs and _is_share_of_epoch(printed, between, last) and counter_of(pairs[-1][0]) == "epoch":
            pairs.append(("step", number, ""))  # `Epoch: 1/20 (12/400)`, `Epoch:[1/20](12/400)`
            continue
        if pairs and pairs[-1][0] and (beside := _beside(between)):
            if not number.endswith("%") and not counter_of(pairs[-1][0]):
                pairs.append((f"{pairs[-1][0]}{beside}", number, ""))
            continue
        if is_open and not between.strip(" :") and "." in number:  # `train loss 100 2.31`
            pairs[-1:] = [("step", pairs[-1][1], ""), (pairs[-1][0], number, "")]
            has_counter, is_open = True, False
            continue
        is_open = number.isdigit() and not has_counter and _LOSS_BEFORE.search(between) is not None
        label, rest = _label_of(between) if len(between) <= _KEPT_CHARACTERS else _find_label(between)
        if not label and pairs and _BESIDE.fullmatch(between) and counter_of(pairs[-1][0]) == "epoch":
            label = "step"  # Epoch: [0] [  0/1234]
        if label and (within := _WITHIN.match(label)) is not None:
            awaited, label = within.groups()
        elif not label and awaited and not between.strip(" :="):
            label, awaited = awaited, ""
        if label and not has_counter and counter_of(label):
            has_counter = True
            before = printed[: match.start() - len(between)] + rest
        pairs.append((label, number, ""))
    return [pair for pair in pairs if pair[0]], before


def _is_share_of_epoch(printed: str, between: str, last: int) -> bool:
    """Whether a number and its total stand alone in brackets, which `between` opens."""
    return _OPENED.fullmatch(between) is not None and _SHARE_OF_EPOCH.match(printed, last) is not None


def _beside(between: str) -> str:
    """Return whether a number is the average or the deviation of the one before it; empty for all others."""
    return "_avg" if _AVERAGE.match(between) else "_std" if _DEVIATION.match(between) else ""


@lru_cache(maxsize=4096)
def _label_of(between: str) -> tuple[str, str]:
    """As `_find_label`; lines repeat what stands between their numbers."""
    return _find_label(between)


def _find_label(between: str) -> tuple[str, str]:
    """The label at the end of the text before a number, and what stands before the label."""
    if between[-2:] == ", " and (quoted := _QUOTED.search(between[-_KEPT_CHARACTERS:])) is not None:
        return quoted.group(1), ""
    text = between.rstrip(" \t:='\"")
    if text[-1:] in ("[", "("):
        inner = text[:-1].rstrip()
        # A list's first number is named as the list is; a counter may stand in brackets after its name.
        name = _SEPARATOR.split(inner)[-1].strip(" -.")
        if inner[-1:] in ("=", ":") or counter_of(name) or (text[-1] == "(" and _SEVERAL.search(name)):
            text = inner.rstrip(" \t:='\".")
    elif text[-1:] == "|" and (measured := _MEASURE_AND_BAR.search(between)) is not None:
        return measured.group(1).strip(), between[: measured.start()]
    parts = _SEPARATOR.split(text)
    label = parts[-1].strip(" \t'\"-#>~")
    head = text[: len(text) - len(parts[-1])]
    for sign in ("=", ":"):
        left, found, right = label.rpartition(sign)
        if found:
            head, label = head + left + found, right.strip(" '\"")
    label = _UNIT_BEFORE.sub("", _SYMBOLS.sub("", label)).removesuffix(" is").removeprefix("of ")
    if (told := _TOLD.match(label)) is not None:
        label = told.group(1)
    if not LABEL.fullmatch(label) or _PROSE.search(label):
        return "", text
    return label, head


def _normal(label: str) -> str:
    words = label.lower().replace("_", " ").split()
    return "_".join(word for word in words if word and word not in _PLAIN_WORDS)


def counter_of(label: str) -> str:
    """Return the counter that a label names; see `_counter_of`."""
    return _counter_of(label) if len(label) <= _KEPT_CHARACTERS else ""


@lru_cache(maxsize=4096)
def _counter_of(label: str) -> str:
    """Return the counter that a label names: `global`, `step`, `batch`, `epoch`, `total`; empty if there is none."""
    return _kind_of(label) or _kind_of(_CAMEL.sub("_", label))


def _kind_of(label: str) -> str:
    label = " ".join(label.lower().split())
    label = label[evaluated.end() :] if (evaluated := _EVALUATED_AT.match(label)) is not None else label
    plain = label.replace(" ", "_")
    if plain in _GLOBAL:
        return "global"
    if plain in _TOTALS:
        return "total"
    plain = _normal(label)
    for kind, names in (("global", _GLOBAL), ("step", _STEP), ("batch", _BATCH), ("epoch", _EPOCH)):
        if plain in names:
            return kind
    return ""


def counts_episodes(label: str) -> bool:
    """Whether a label counts episodes, which are the steps where a line has no other counter."""
    return label.lower().strip(".") in _EPISODES


def counts_rounds(label: str) -> bool:
    """Whether a label counts rounds, which are the steps where a line has a loss with a fraction."""
    return label.lower().strip(".") in _ROUNDS


def counts_frames(label: str) -> bool:
    """Whether a label counts frames of a game, which are the steps where a line counts no episodes either."""
    return label.lower().strip(".") in _FRAMES


def is_short_counter(label: str) -> bool:
    """Whether a label counts steps where their total comes after it: `Finished training it 1024/306969`."""
    return len(label) <= _KEPT_CHARACTERS and _normal(label) in SHORT_COUNTERS


def find_position(counters: Mapping[str, tuple[int, int | None]]) -> tuple[int | None, dict[str, float]]:
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
    names_step_first = next(iter(counters), "") == "step"  # a step within an epoch comes after it
    if whole is None and step is not None and (batch is not None or epoch is None or names_step_first):
        whole, step = step, None
        if batch is not None and batch[1] is None and epoch is None:
            values["batch"] = float(batch[0])
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


def parse_whole(text: str) -> int | None:
    """A counter's value; None if it is no whole number."""
    number = parse_number(text)
    if number is None or not math.isfinite(number) or not 0 <= number < _MAX_STEP or not number.is_integer():
        return None
    return int(number)


def apply_counter(reading: Reading, before: str) -> None:
    """Give a dictionary that names no step that of the counter before it: `global_step: 100, {'loss': 2.5}`."""
    if reading.iteration is not None or len(before) < _SHORTEST_COUNTER or "<" in before:
        return
    pairs, _ = find_labelled(without_times(before[-_COUNTER_CHARACTERS:]))
    if pairs and counter_of(pairs[-1][0]) in ("global", "step"):
        reading.iteration = parse_whole(pairs[-1][1])


def words_beside(text: str, pairs: Collection[tuple[str, str, str]]) -> int:
    """Count the words of a line beside labels, levels, and those that follow a number closely."""
    labels = {word for name, _, _ in pairs for word in re.split(r"[^a-z]+", name.lower())}
    words = re.findall(r"(?<![\w.])[a-z]{3,}", without_times(text[:512]).lower().replace("_", " "))
    return sum(word not in labels and word not in _PLAIN_WORDS and word not in _TIME_WORDS for word in words)


def without_labels(text: str, labels: Iterable[str]) -> str:
    """A line without these labels of its numbers: `Loss: 2.1 || Val Loss: 2.2` speaks of a training."""
    for label in labels:
        text = text.replace(label, "")
    return text


def are_settings(pairs: Iterable[tuple[str, str, str]]) -> bool:
    """Whether the counters of a line are how many there will be: `steps: 1000`."""
    return any(counter_of(name) and name.lower().endswith("s") and not total for name, _, total in pairs)


def is_placed(counters: Mapping[str, tuple[int, int | None]]) -> bool:
    """Whether a step stands beside its epoch or its total: more than somebody's `step: 5`."""
    steps = [total for kind, (_, total) in counters.items() if kind in ("global", "step", "batch")]
    return bool(steps) and ("epoch" in counters or any(total is not None for total in steps))
