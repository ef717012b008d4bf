"""Progress bars: how far they are, and whose step that is."""

from __future__ import annotations

import re

from .readings import Reading

Bar = tuple[int, int | None]

# It stands before the time that is left, in every bar.
BAR_TEXT = "<"
_BAR = re.compile(r"(?<![\w.])(\d+)/(\d+) \[(?=[\d?:]+<)")


def last_bar(text: str) -> Bar | None:
    """The last bar on a text, as (done, total)."""
    if BAR_TEXT not in text:
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
