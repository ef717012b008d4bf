"""The counters and measures of a line, for the general reader: which number counts, which is the headline loss."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from ...plugin_api.log_formats import Field
from .columns import Columns
from .general_evaluation import name_of_evaluated
from .general_labels import (
    counter_of,
    counts_episodes,
    counts_frames,
    counts_rounds,
    is_placed,
    is_short_counter,
    parse_whole,
)
from .general_words import OF_BLOCKS
from .numbers import parse_number

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
    "mean_training_loss",
    "mean_train_loss",
    "average_training_loss",
    "average_train_loss",
    "avg_train_loss",
    "avg_training_loss",
    "loss_train",
)
# Measures of a training that are no loss by name; beside a counter of steps they make a step of a line.
_LOSS_LIKE = re.compile(
    r"(?i)(?<![a-z])(?:xent|nll|ce|bce|mse|elbo|cross[-_ ]?entropy)(?![a-z])|cross_?entropy"
    r"|(?<![a-z])(?<!time[ _])(?<!batch_)(?<!reader_)(?:avg|train|total)?cost(?![a-z])(?![ _]?time)"
)
_PERPLEXITY = re.compile(r"(?i)(?<![a-z])(?:ppl|perplexity|bpc|bpd|bits[-_ ]per[-_ ]\w{1,16})(?![a-z])")
# A score is of the training where the speed or the learning rate of a training stands beside it.
_SCORE = re.compile(r"(?i)(?<![a-z\d])(?:acc|accuracy|top[-_]?[15]|auc|f1|rmse|mae)(?![a-z\d])|(?<=[a-z_])acc$")
_ERROR = re.compile(r"(?i)(?:train(?:ing)?[ _])?err(?:or)?")
# A step whose line holds times alone, where the loss is not printed.
TIMES_OF_STEPS = frozenset(["train_time"])
_STORED_PACES = frozenset(["learning_rate", "samples_per_second", "tokens_per_second", "elapsed_time_per_iteration_ms"])
_PACE = re.compile(
    r"(?i)^(?:lr|learning[_ ]rate|speed|ips|fps(?: total)?|sps|throughput"
    r"|(?:tokens?|samples?|words?|tok|imgs?|images?)[ _]?(?:/|per[ _])[ _]?s(?:ec(?:ond)?)?)$"
)
# The result of an episode, where a line counts episodes.
_SCORE_OF_EPISODE = re.compile(r"(?i)(?:^|[ _/])score$")
_GOALS = re.compile(
    r"(?i)reward|return|^(?:average|mean) score$|^kimg$|^train(?:ing)?[ _/.-]+(?:\w+[ _])?"
    r"(?:auc|acc|accuracy|error|rmse|mae|mse|logloss|ppl|perplexity|f1)\b"
)
_NO_LOSS = re.compile(
    r"(?i)loss[_ ]?(?:scale|weight|coef|fn|type|\w{0,12}time)|(?:best|min|prev|last)[_ ]?loss|loss_?(?:func)"
)
_DOCUMENT = re.compile(r"(?i)\.(?:txt|json|csv|log|ya?ml|md|html|png)$")
COLUMNS = Columns({"l.r.": Field("learning_rate")}, _LOSS_NAMES)


def count_and_measure(
    pairs: Collection[tuple[str, str, str]],
) -> tuple[dict[str, tuple[int, int | None]], dict[str, str]]:
    """Divide the labelled numbers of a line into counters, with their totals, and what was measured."""
    counters: dict[str, tuple[int, int | None]] = {}
    measures: dict[str, str] = {}
    rough: dict[str, tuple[int, int | None]] = {}
    episode: tuple[int, int | None] | None = None
    of_episodes = False
    for name, value, total in pairs:
        kind = counter_of(name) or ("step" if total and is_short_counter(name) else "")
        if kind == "epoch" and not total and name.lower().endswith("epochs"):  # how many there are
            continue
        is_episode = counts_episodes(name)
        is_better = episode is None or (is_episode and not of_episodes)
        counts = is_episode or counts_frames(name)
        if counts and is_better and (number := parse_whole(value)) is not None:
            episode, of_episodes = (number, parse_whole(total) if total else None), is_episode
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
    if episode is not None and of_episodes and _counts_first(pairs):
        counters = {kind: place for kind, place in counters.items() if kind != "step"}
    if not counters and not rough and (place := _find_round(pairs)) is not None:
        return {"step": place}, {name: text for name, text in measures.items() if not counts_rounds(name)}
    is_goal = any(_GOALS.search(name) or (of_episodes and _SCORE_OF_EPISODE.search(name)) for name in measures)
    if episode is not None and not counters and not rough and is_goal:
        return {"step": episode}, {name: text for name, text in measures.items() if not counts_episodes(name)}
    return (counters if counters.keys() - {"epoch"} else {**rough, **counters}), measures


def _find_round(pairs: Iterable[tuple[str, str, str]]) -> tuple[int, int | None] | None:
    """The round of a line with a loss that has a fraction: in a game losses are whole."""
    has_loss = False
    place: tuple[int, int | None] | None = None
    for name, value, total in pairs:
        has_loss = has_loss or (name.lower().endswith("loss") and "." in value)
        if counts_rounds(name) and (number := parse_whole(value)) is not None:
            place = number, parse_whole(total) if total else None
    return place if has_loss else None


def _counts_first(pairs: Iterable[tuple[str, str, str]]) -> bool:
    """Whether a line counts an episode before anything else: the steps after it are the episode's length."""
    first = next((name for name, _, _ in pairs if counts_episodes(name) or counter_of(name)), "")
    is_length = all(name.lower().endswith("steps") and not total for name, _, total in pairs if counter_of(name))
    return counts_episodes(first) and is_length


def is_evaluated(measures: Mapping[str, str], *, has_counter: bool) -> bool:
    """Whether all numbers are of an evaluation: each says so, or the first one of a line without a counter does."""
    own = [name.lower() for name in measures if not name_of_evaluated(name)]
    if not own:
        return bool(measures)
    begins = name_of_evaluated(next(iter(measures))) != ""
    return begins and not has_counter and not any("loss" in name or name.startswith("train") for name in own)


def measure_values(measures: Mapping[str, str], *, is_named: bool = True) -> dict[str, float]:
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
    values = COLUMNS.read_pairs(own)
    if "lm_loss" not in values and is_named:
        named = [name for name in values if "loss" in name.lower() and not _NO_LOSS.search(name)]
        named = [name for name in named if not name.endswith("_avg")] or named
        named = named or [name for name in values if _LOSS_LIKE.search(name) and not name.endswith("_avg")]
        if named:
            values["lm_loss"] = values.pop(named[0])
            if (average := values.pop(f"{named[0]}_avg", None)) is not None:
                values["lm_loss_avg"] = average
    for name, number in evaluated.items():
        values.setdefault(name, number)
    return values


def measures_training(values: Collection[str], counters: Mapping[str, tuple[int, int | None]]) -> bool:
    """Whether numbers other than a loss are what a training measures."""
    own = [name for name in values if not name_of_evaluated(name)]
    if counters.get("epoch", (0, None))[1] is not None and "frames" in own and any(map(_PACE.match, own)):
        return True
    if any(_GOALS.search(name) for name in own) or _is_score_of_episode(own, counters):
        return True
    if is_placed(counters) and any(_PERPLEXITY.search(name) for name in own):
        return True
    if "epoch" in counters and any(_ERROR.fullmatch(name) for name in own) and (is_placed(counters) or len(own) == 1):
        return True
    if "epoch" in counters and "step" in counters and ("learning_rate" in own or {"time", "data"} <= set(own)):
        return True
    is_timed = len(own) == len(values) and not TIMES_OF_STEPS.isdisjoint(own)
    if (is_timed or "learning_rate" in own) and counters.get("step", (0, None))[1] is not None:
        return True
    has_pace = any(_PACE.match(name) or name in _STORED_PACES for name in own)
    return has_pace and any(_SCORE.search(name) or _PERPLEXITY.search(name) for name in own)


def is_measure(name: str) -> bool:
    """Whether a number of this name is something that a training measures."""
    patterns = (_GOALS, _SCORE, _LOSS_LIKE, _PERPLEXITY, _PACE)
    is_named = "loss" in name or "entropy" in name or name in OF_BLOCKS or name in _STORED_PACES
    return is_named or any(pattern.search(name) for pattern in patterns)


def is_pace(name: str) -> bool:
    """Whether a number of this name is a speed or a learning rate."""
    return _PACE.match(name) is not None


def _is_score_of_episode(names: Collection[str], counters: Mapping[str, tuple[int, int | None]]) -> bool:
    """Whether the only measure beside a step is a score: what an episode of it brought."""
    return set(counters) == {"step"} and len(names) <= 3 and any(_SCORE_OF_EPISODE.search(name) for name in names)
