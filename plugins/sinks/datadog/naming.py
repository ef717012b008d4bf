"""Names and tags by Datadog's rules (docs.datadoghq.com: metrics/custom_metrics and getting_started/tagging)."""

from __future__ import annotations

import re
from functools import lru_cache

MAX_LENGTH = 200

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]")
_BEFORE_NAMES = re.compile(r"^[^A-Za-z]+")
_NOT_IN_TAGS = re.compile(r"[^\w\-:./]")
_BEFORE_TAGS = re.compile(r"^[\W\d_]+")
_UNDERSCORES = re.compile(r"__+")


@lru_cache(maxsize=20_000)
def metric_name(text: str) -> str:
    """A metric's name: ASCII letters, digits, `_` and `.`, a letter first, at most 200; '' when nothing is left."""
    return _BEFORE_NAMES.sub("", _NOT_IN_NAMES.sub("_", text))[:MAX_LENGTH]


@lru_cache(maxsize=20_000)
def tag(text: str) -> str:
    """A tag: lower case, letters, digits and `_-:./`, a letter first, at most 200; '' when nothing is left."""
    clean = _UNDERSCORES.sub("_", _NOT_IN_TAGS.sub("_", text.lower()))
    return _BEFORE_TAGS.sub("", clean)[:MAX_LENGTH].rstrip("_")
