"""Places of a training that a line names without a word, for the general reader; and the sections of a line.

`[1/3][100/1000]` and `[1, 2000]` are an epoch and a step, `[100/1000]` and `100/1000 (` a step. A line may begin with a
lone number (`[200] | loss 7.1`); that is a step only where it grows from line to line, which its stream knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Labelled = tuple[str, str, str]

# The batches of an interval: the last one is where the training is.
RANGE = re.compile(r"\[ {0,8}\d{1,12} {0,4}- {0,8}(\d{1,12}) {0,8}\]")
# The rest of a line's prefixes.
_START = r"[\s:|>-]{0,40}"
# A line may begin with its step: `100/21150 (epoch 0.236), train_loss = 2.19`, `[100 | 34.56] loss=3.12`.
_FIRST = re.compile(
    r"\s{0,8}(?:(?P<step>\d{1,12})/(?P<total>\d{1,12})\s{0,4}[(,;|:=]|\[(?P<alone>\d{1,12}) \| [\d.]{1,16}\])"
)
# Catalyst's epoch: `train (1/10) loss: 0.41 | lr: 0.001`
_OF_PHASE = re.compile(r"\s{0,8}train \((\d{1,9})/(\d{1,9})\) (?=[A-Za-z])")
# `[train: 1, 50 / 1000]` has an epoch and a step, `[proc 0][Train](1000/40000)` and `Net |####| (404/404)` a step.
_OF_TRAINING = re.compile(r"(?i)\[train(?:ing)?: {0,4}(\d{1,9}), {0,8}(\d{1,12}) ?/ ?(\d{1,12})\]")
_BEHIND_NAME = re.compile(r"(?:\]|\| ?)\((\d{1,12})/(\d{1,12})\)\s")
# A place between pipes, with its unit perhaps: `Train | Epoch 1 | 200/2000 | 2.3 it/sec`, `|  100/ 1000 steps|`
_CELL = re.compile(r"\|\s{0,8}(\d{1,12})/\s{0,8}(\d{1,12})(?: steps)?(?:\s{0,4}\|| \[\d{1,3}%\])")
_BANNER = re.compile(
    r"(?i)(?:[*=#>~-]{3,80}\s{0,8}|\s{4,80})(step|iteration|iter|epoch|update):? (\d{1,12})(?:/(\d{1,12}))?"
    r"(?:\s{0,8}[*=#<~-]{3,80}|\s{4,80})\s{0,8}"
)
# `[ Train | 003/080 ] loss = 0.51` has an epoch.
_EPOCH_OF_PHASE = re.compile(r"\[ {0,2}Train {0,2}\| {0,2}(\d{1,9})/(\d{1,9}) {0,2}\]")
# `[1] (3/49): loss = 0.11` has an epoch and a step, too.
_EPOCH_AND_BATCH = re.compile(r"(?<![\w\])])\[(\d{1,9})\] \((\d{1,12})/(\d{1,12})\):? ")
_PAIR = re.compile(r"\[\s{0,8}(\d{1,9})(?:\s{0,8}/\s{0,8}(\d{1,9}))?\s{0,8}\]")
# `200/ 2983 batches`
_NAMED_BEHIND = re.compile(r"(?<![\w./-])(\d{1,12})/ {0,8}(\d{1,12}) (?:batch(?:es)?|steps|iter(?:ation)?s|updates)\b")
_LISTED = re.compile(rf"{_START}\[\s{{0,8}}(\d{{1,9}}),\s{{0,12}}(\d{{1,9}})\s{{0,4}}\][\s:,-]{{0,8}}(?=[A-Za-z])")
_ALONE = re.compile(
    rf"{_START}(?:\[\s{{0,8}}(?P<within>\d{{1,12}})\s{{0,8}}\]|(?P<bare>\d{{1,12}}))"
    r"(?:\s{0,8}[|:,;)-]{1,2}\s{0,8}(?=[A-Za-z])|(?<=\])\s{1,16}(?=[A-Za-z_][\w/.-]{0,60}(?:[=:]| [-+]?\d))"
    r"|\s{1,4}(?=\[[A-Z][\w ]{0,20}loss:)"
    r"|\s{1,16}(?=(?:[Tt]rain(?:ing)?[ _])?\w{0,20}[Ll]oss\b))"
)
_LAST = re.compile(r"(?<![\w./(-])(\d{1,12})/(\d{1,12})\s{0,8}$")
# The data that the next numbers are of follow as `train=`, `valid=` in some.
_SECTION = re.compile(
    r"(?i)(?<![\w/-])(train|training|trn|tr|val|valid|validation|test|eval|dev)"
    r"(?:\s?(?::\s?[(\[{]|[(\[{:]\s?)(?=[A-Za-z_])|=(?:\['?)?[a-z]\w{0,40}(?:'?\])?\s(?=[a-z]{1,16}=))"
)


def find_nameless(printed: str) -> Iterator[Labelled]:
    """Counters without a name: `[1/3][100/1000]` is an epoch and a step; `[100/1000]` and `100/1000 (` are a step."""
    if (first := _FIRST.match(printed)) is not None:
        yield "step", first.group("step") or first.group("alone"), first.group("total") or ""
        return
    if (phase := _OF_PHASE.match(printed)) is not None:
        yield "epoch", phase.group(1), phase.group(2)
        return
    if (listed := _LISTED.match(printed)) is not None:
        yield "epoch", listed.group(1), ""
        yield "step", listed.group(2), ""
        return
    if "/" in printed and (placed := _find_placed(printed)):
        yield from placed
        return
    found = list(_PAIR.finditer(printed))[:2]
    if len(found) == 2 and found[0].end() == found[1].start():
        yield "epoch", found[0].group(1), found[0].group(2) or ""
        yield "step", found[1].group(1), found[1].group(2) or ""
    elif found and found[0].group(2):
        yield "step", found[0].group(1), found[0].group(2)


def _find_placed(printed: str) -> list[Labelled]:
    """An epoch or a step with its total, beside the word for a training, between pipes or in brackets."""
    if (phase := _EPOCH_OF_PHASE.search(printed)) is not None:
        return [("epoch", phase.group(1), phase.group(2))]
    if (both := _OF_TRAINING.search(printed) or _EPOCH_AND_BATCH.search(printed)) is not None:
        return [("epoch", both.group(1), ""), ("batch", both.group(2), both.group(3))]
    if (named := _BEHIND_NAME.search(printed) or _CELL.search(printed)) is not None:
        return [("step", named.group(1), named.group(2))]
    return []


def find_batch(printed: str) -> Labelled | None:
    """The batch of an epoch whose name comes after it: `| epoch   3 |   200/ 2983 batches |`."""
    named = (_NAMED_BEHIND.search(printed) or _CELL.search(printed)) if "/" in printed else None
    return ("batch", named.group(1), named.group(2)) if named is not None else None


def find_banner(text: str) -> Labelled | None:
    """The counter of a line that has nothing else, between marks or in the midst of blanks: `*** Iteration 12 ***`."""
    banner = _BANNER.fullmatch(text)
    return banner.groups(default="") if banner is not None and banner.lastindex is not None else None  # type: ignore[return-value]


def find_number(printed: str) -> Labelled | None:
    """The lone number with which a line of losses begins, or the `101/391` with which it ends."""
    if (last := _LAST.search(printed)) is not None:
        return "step", last.group(1), last.group(2)
    alone = _ALONE.match(printed)
    return ("step", alone.group("within") or alone.group("bare"), "") if alone is not None else None


def split_sections(printed: str) -> list[tuple[str, str]]:
    """The parts of a line like `epoch 1 train: (loss = 2.1) test: (loss = 2.2)`, each with the word for its numbers.

    The word is empty for numbers of the training. A line without a part for an evaluation is one part.
    """
    heads = list(_SECTION.finditer(printed))
    words = [head.group(1).lower() for head in heads]
    if len(heads) < 2 or all(word.startswith("tr") for word in words):
        return [("", printed)]
    ends = [head.start() for head in heads[1:]] + [len(printed)]
    parts = [("", printed[: heads[0].start()])]
    for head, word, end in zip(heads, words, ends, strict=True):
        parts.append(("" if word.startswith("tr") else word, printed[head.end() : end]))
    return parts
