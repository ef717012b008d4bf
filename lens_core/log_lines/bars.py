"""Progress bars: how far they are, and whose step that is."""

from __future__ import annotations

import re

from .readings import Reading

Bar = tuple[int, int | None]

_BAR = re.compile(r"(?<![\w.])(\d+)/(\d+) \[(?=[\d?:]+<)")


def cannot_hold_bar(text: str) -> bool:
    """Whether a raw line certainly holds no bar: no time that is left, nor anything that has to be opened first."""
    return "<" not in text and text[:1] != "{" and "\r" not in text


def last_bar(text: str) -> Bar | None:
    """The last bar on a text, as (done, total)."""
    if "<" not in text:  # the time that is left: every bar has it
        return None
    found = None
    for match in _BAR.finditer(text):
        found = match
    return (int(found.group(1)), int(found.group(2))) if found is not None else None


def take_bar(reading: Reading, bar: Bar | None) -> None:
    """A dictionary that names no step belongs to the bar before it."""
    if bar is None or reading.iteration is not None or "target_iteration" in reading.values:
        return
    reading.iteration = bar[0]
    if bar[1] is not None:
        reading.values["target_iteration"] = float(bar[1])
