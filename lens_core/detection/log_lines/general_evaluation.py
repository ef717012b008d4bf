"""Reads numbers of an evaluation, for the general reader: they keep a name of their own (`val/loss`).

They belong to the step that their line names, else to the newest step of the stream. A line in the midst of an
evaluation, which says how many of its batches are done, is none: its numbers are running averages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .general_labels import counter_of, parse_whole, without_times, words_beside
from .numbers import parse_number
from .readings import Reading

EVALUATION = "general.evaluation"
_WORDS = "val|valid|validation|eval|evaluation|test|dev|cv|crossval|heldout|held-out"
_NAME = re.compile(rf"(?i)^({_WORDS})(?:[ _/.-]+(.+))?$")
_STATISTIC = re.compile(r"(?i)^(?:last|latest|mean|avg|average)[ _](?=test|val|eval)")
_WORD = re.compile(rf"(?i)(?<![A-Za-z_])(?:{_WORDS}|validating|evaluating|testing)(?![A-Za-z])")
_OF_WORDS = {"validating": "val", "evaluating": "eval", "testing": "test"}
# A number by these names is the result of an evaluation; what else stands on such a line may be a size or a setting.
_RESULT = re.compile(
    r"(?i)loss|(?<![a-z])(?:acc|accuracy|ppl|perplexity|score|dice|m?iou|m?ap|bleu|rouge|wer|cer|f1|au[cr]|r?mse|mae"
    r"|error|reward|return|nll|bp[bcd]|entropy|precision|recall|top[-_]?[15]|psnr|ssim|fid|em)(?![a-z])|acc(?:uracy)?$"
)
_OTHER_WORK = re.compile(
    r"(?i)\b(?:best|improv\w*|trial|search|sanity|load\w*|sav(?:e|ed|ing)|restor\w*|resum\w*|config|args|arguments"
    r"|options|no|not|until|every|warmup|from|patience|early|skip\w*|will)\b"
)
_STEP_OF_LABEL = re.compile(
    r"(?i)\b(?:at|after|for)\s(?:train\s|training\s|global\s)?(?:step|iteration|iter|update)s?$"
)
_PROGRESS = re.compile(r"(?<![\w./:-])(\d{1,9})\s{0,2}/\s{0,2}(\d{1,9})(?![\w./:-])")
_OWN_STEP = re.compile(rf"(?i)\b(?:{_WORDS})[ _](?:steps?|iter\w{{0,7}}|batch(?:es)?)\b")
# XGBoost's round.
_ROUND = re.compile(r"(?<!\S)\[(\d{1,9})\]\s")
_NEAR_CHARACTERS = 40
# Labels are remembered up to this length; longer ones are none of an evaluation.
_KEPT_CHARACTERS = 200
_COUNTED_RIGHT = re.compile(r"(?i)(?:acc\w*|correct)\W{1,4}$")


def name_of_evaluated(label: str) -> str:
    """The stored name of an evaluation's number (`val/loss`); empty if it is not one."""
    return _name_of_evaluated(label) if len(label) <= _KEPT_CHARACTERS else ""


@lru_cache(maxsize=4096)
def _name_of_evaluated(label: str) -> str:
    """As `name_of_evaluated`; lines repeat their labels."""
    match = _NAME.match(_STATISTIC.sub("", label.strip()))
    if match is None:
        return ""
    rest = "_".join((match.group(2) or "").split()).lower()
    return f"{match.group(1).lower()}/{rest}" if rest else ""


def name_repeated(pairs: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Name numbers that the training has, too, as of the evaluation before them: `Loss: 2 | Val Acc: 1 loss: 3`."""
    seen: set[str] = set()
    word = ""
    named: list[tuple[str, str, str]] = []
    for name, number, total in pairs:
        kept = name_of_evaluated(name)
        word = kept.partition("/")[0] or word
        is_repeated = bool(word) and not kept and name.lower() in seen
        seen.add(name.lower())
        named.append((f"{word} {name}" if is_repeated else name, number, total))
    return named


def is_word_of_evaluation(text: str) -> bool:
    """Whether a text is nothing but the name of an evaluation: the first cell of a row `Validation  3  0.51`."""
    return _WORD.fullmatch(text) is not None


def speaks_of_evaluation(text: str, measures: Mapping[str, str]) -> bool:
    """Whether a line says that it is about an evaluation elsewhere than in the labels of its numbers."""
    # `Eval   1 at step 4000` counts evaluations; `Val: 0.51` is a result.
    labels = (
        name
        for name, number in measures.items()
        if not _STEP_OF_LABEL.search(name) and not (number.isdigit() and is_word_of_evaluation(name))
    )
    in_labels = sum(len(_WORD.findall(name)) for name in labels)
    return len(_WORD.findall(without_times(text))) > in_labels


def is_of_evaluation(body: Mapping[str, Any]) -> bool:
    """Whether an object says in one of its entries that it is of an evaluation."""
    purposes = (body.get(key) for key in ("event", "split", "mode", "phase", "stage", "type"))
    return any(isinstance(text, str) and _NAME.match(text) for text in purposes)


def read_evaluation(
    text: str, counters: Mapping[str, tuple[int, int | None]], measures: Mapping[str, str]
) -> Reading | None:
    """Return the results of an evaluation on a line; None where it has none, or is in the midst of one."""
    if _OTHER_WORK.search(text) or not any(_RESULT.search(name) for name in measures):
        return None
    if speaks_of_evaluation(text, measures) and _is_under_way(text, counters):
        return None
    word = _WORD.search(without_times(text))
    if word is None or words_beside(text, [(name, "", "") for name in measures]) > 4 + 2 * len(measures):
        return None
    spoken = word.group().lower()
    of_all = _OF_WORDS.get(spoken, spoken)
    iteration: int | None = None
    values: dict[str, float] = {}
    for label, printed in measures.items():
        if _STEP_OF_LABEL.search(label):
            iteration = parse_whole(printed)
        elif label.lower().startswith("train"):
            continue
        elif (number := parse_number(printed)) is not None and not counter_of(label):
            own = "_".join(label.split()).lower()
            values.setdefault(name_of_evaluated(label) or f"{of_all}/{own}", number)
    whole = counters.get("global") or counters.get("step")
    if iteration is None and whole is not None:
        iteration = whole[0]
    if iteration is None and (printed_round := _ROUND.search(text)) is not None:
        iteration = int(printed_round.group(1))
    if not values:
        return None
    epoch = counters.get("epoch", (None, None))[0]
    return Reading(
        format=EVALUATION,
        iteration=iteration,
        values=values,
        joins="evaluates",
        epoch_of_evaluation=epoch,
        text=text,
    )


def _is_under_way(text: str, counters: Mapping[str, tuple[int, int | None]]) -> bool:
    """Whether a line says how many batches of the evaluation are done, and that some are left."""
    if "batch" in counters or _OWN_STEP.search(text):
        return True
    plain = without_times(text)
    return any(
        match.group(1) != match.group(2)
        and not _COUNTED_RIGHT.search(plain[max(0, match.start() - _NEAR_CHARACTERS) : match.start()])
        for match in _PROGRESS.finditer(plain)
    )
