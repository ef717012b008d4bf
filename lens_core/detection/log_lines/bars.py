"""Progress bars: how far they are, and whose step that is."""

from __future__ import annotations

import re

from .readings import Reading

Bar = tuple[int, int | None]

# It stands before the time that is left, in every bar.
BAR_TEXT = "<"
_BAR = re.compile(r"(?<![\w.])(\d{1,18})/(\d{1,18}) \[(?=[\d?:]{1,12}<)")
# The text before the finished share; a bar of anything but training names its work.
_LABEL = re.compile(r"([A-Za-z][^|%\r\n\[\]]{0,80}?)[: ]{0,8}\d{1,3}%\|[^\r\n]{0,400}$")
# Numbers that a loop puts into the description: `loss: 0.6912: 50%|`.
_NUMBERS = re.compile(
    r"[A-Za-z_][\w./-]{0,60}(?:[ \t]{0,4}[:=][ \t]{0,4}|[ \t](?=[-+]?\d{0,9}\.\d))[-+]?\d[\d.eE+-]{0,24}%?"
)
_OF_TRAINING = re.compile(
    r"(?i)^(?:.*[\])>] )?\W*(?:train(?:ing)?\s{1,20})?"
    r"(?:train(?:ing)?(?: (?:progress|loop))?|steps?|epochs?|iter(?:ation)?s?|total)\b"
    r"(?:[^A-Za-z]|running|avg|average|mean|loss|steps?|epochs?)*$"
)
_PREFIX = re.compile(r"^.*(?:\s-(?:\s|$)|\b(?:INFO|DEBUG|WARNING|ERROR)\b)")
_PROCESS = re.compile(r"\(?[^()]{0,80}\bpid=\d{1,9}[^()]{0,80}\)")
_HOST = re.compile(r"(?i:average|avg|mean)|\S*\d\S*|(?:INFO|DEBUG|WARNING|ERROR|root|__main__|stderr|stdout|F|:){1,8}")
_LABEL_CHARACTERS = 600


def last_bar(text: str) -> Bar | None:
    """The last bar of a training on a text, as (done, total); a bar that names other work is none."""
    if BAR_TEXT not in text:
        return None
    found = None
    for match in _BAR.finditer(text):
        if not _is_of_other_work(text[max(0, match.start() - _LABEL_CHARACTERS) : match.start()]):
            found = match
    return (int(found.group(1)), int(found.group(2))) if found is not None else None


def _is_of_other_work(before: str) -> bool:
    """Whether the text before a bar's counter names something else: `Loading weights: 100%|███| `."""
    label = _LABEL.search(before.rpartition("\r")[2])
    if label is None:
        return False
    described = _NUMBERS.sub(" ", _PROCESS.sub(" ", _PREFIX.sub("", label.group(1)).replace("(", " (")))
    words = [word for word in described.split() if not _HOST.fullmatch(word)]
    name = _PROCESS.sub("", " ".join(words)).strip(" -:,;")
    return bool(name) and _OF_TRAINING.match(name) is None


def apply_bar(reading: Reading, bar: Bar | None) -> None:
    """Give a dictionary that names no step that of the bar before it; its stream decides whether it is (`steps.py`)."""
    if bar is None or reading.iteration is not None or "target_iteration" in reading.values:
        return
    reading.iteration = bar[0]
    reading.bar = bar
    if bar[1] is not None:
        reading.values["target_iteration"] = float(bar[1])
