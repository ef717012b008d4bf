"""Why a line was not understood: the format that it comes nearest to, and what it lacks."""

from __future__ import annotations

from typing import NamedTuple

from .compiled import NO_HEAD, CompiledFormat
from .engine import LineEngine
from .text import strip_colours

_LEAST_SHARE = 0.5


class Near(NamedTuple):
    """A format that a line almost is in; `share` of the words that it needs are there."""

    format: str
    share: float
    reason: str
    example: str


def nearest(engine: LineEngine, text: str) -> Near | None:
    """The nearest format of a line that is no step; None when it has less than half of the words of each.

    One letter alone is none: the T and Z of a time are words, too.
    """
    text = strip_colours(text)
    words = engine.words_of(text)
    best: tuple[float, bool, int, str] = (0.0, False, 0, "")
    found: Near | None = None
    for fmt in engine.formats:
        there = fmt.words & words
        share = len(there) / max(1, len(fmt.words))
        if share < max(_LEAST_SHARE, best[0]) or max(map(len, there)) < 2:
            continue
        missing = sorted(word.decode() for word in fmt.words - words)
        reason = f"without the word{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else _why(fmt, text)
        rank = (share, not missing and reason != NO_HEAD, len(there), fmt.name)
        if rank > best:
            best, found = rank, Near(fmt.name, share, reason, fmt.declared.example)
    return found


def _why(fmt: CompiledFormat, text: str) -> str:
    result = fmt.parse_row(text)
    return result if isinstance(result, str) else fmt.lacks(result[0])
