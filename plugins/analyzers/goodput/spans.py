"""Spans of time as people write them: 7d, 12h, 30m, 90s, or a time in milliseconds since the epoch."""

from __future__ import annotations

import re
import time

from lens_core import BadRequest

_SPAN = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhdw])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_MILLISECONDS = 10**11


def seconds_of_span(text: str) -> float:
    """The seconds from the beginning of a span until now. Raises BadRequest for what is none."""
    found = _SPAN.fullmatch(text.strip())
    if found:
        return float(found[1]) * _UNITS[found[2]]
    if text.isascii() and text.isdigit() and len(text) <= 15 and int(text) > _MILLISECONDS:
        return max(0.0, time.time() - int(text) / 1000)
    raise BadRequest(f"since is {text[:50]!r}; write a span like 7d, 12h or 30m, or a time in ms since the epoch")
