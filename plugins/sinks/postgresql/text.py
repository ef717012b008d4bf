"""Text and numbers that PostgreSQL takes: no NUL, no lone surrogate, no bare NaN.

JSONB has neither NaN nor the infinities; they are the strings "NaN", "Infinity" and "-Infinity" there.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lens_core.plugin_api.store import stored_name

MAX_NAME_BYTES = 1024
MAX_KEY_BYTES = 512
_REFUSED = re.compile("[\x00\ud800-\udfff]")
_MICROSECONDS = 1_000_000
_FIRST_SECOND = -62_135_596_800.0  # year 1
_LAST_SECOND = 253_402_300_800.0  # year 10000

_encoder = msgspec.json.Encoder()
_encode = _encoder.encode


def clean(text: str) -> str:
    """The text with U+FFFD in place of what PostgreSQL refuses."""
    return _REFUSED.sub("\ufffd", text)


def bigint(number: str | int) -> int:
    """A number that somebody else sent and that the database must take. Raises ValueError for one over 64 bits."""
    found = int(number)
    if not -(2**63) <= found < 2**63:
        raise ValueError("the number does not fit in 64 bits")
    return found


def refuse_nul(text: str) -> str:
    """A text that the database must take. Raises ValueError for one that it refuses."""
    if _REFUSED.search(text):
        raise ValueError("the text holds a character that the database refuses")
    return text


def metric_key(name: str) -> str:
    """The key under which a metric is stored: clean, no metadata field, short enough for an index.

    A name over 1,024 bytes keeps its beginning and gets a digest, so that two long names remain two.
    """
    key = stored_name(clean(name))
    encoded = key.encode()
    if len(encoded) <= MAX_NAME_BYTES:
        return key
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return encoded[: MAX_NAME_BYTES - 20].decode("utf-8", "ignore") + "#" + digest


def special(value: float) -> str | None:
    """The string that stands for a number which JSON does not have; None for all others."""
    if math.isfinite(value):
        return None
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def metrics_json(values: Mapping[str, float]) -> bytes:
    """Metrics (their keys are clean) as JSON for a jsonb column."""
    encoded = _encode(values)
    if b"null" in encoded:  # the encoder's form of values that are not finite; or a name contains the word
        encoded = _encode({name: special(value) or value for name, value in values.items()})
    return encoded


def metrics_lines(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """The metrics of each row as JSON for a jsonb column, escaped as COPY wants it."""
    encoded = _encoder.encode_lines(rows)
    if b"null" in encoded:
        encoded = b"\n".join(map(metrics_json, rows)) + b"\n"
    if b"\\" in encoded:
        encoded = encoded.replace(b"\\", b"\\\\")
    return encoded.decode().split("\n")[:-1]


def jsonb(value: Any) -> bytes:
    """Anything JSON-like as JSON for a jsonb column."""
    try:
        encoded = _encode(value)
    except UnicodeEncodeError:
        return _encode(_cleaned(value))
    if b"null" in encoded or b"\\u0000" in encoded:
        return _encode(_cleaned(value))
    return encoded


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return special(value) or value
    if isinstance(value, Mapping):
        return {clean(str(name)): _cleaned(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def microseconds(seconds: float | None) -> int | None:
    """Seconds since the epoch as whole microseconds; None for what is no time of the years 1 to 9999."""
    if seconds is None or not _FIRST_SECOND <= seconds < _LAST_SECOND:
        return None
    return round(seconds * _MICROSECONDS)


def array_of_numbers(numbers: Iterable[float | None]) -> str:
    """Numbers as PostgreSQL writes an array of them, which is made in a tenth of the time of a list's adaptation."""
    return "{" + repr(list(numbers))[1:-1].replace("None", "NULL") + "}"
