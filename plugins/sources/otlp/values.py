"""Attributes and other values of OTLP (AnyValue), as Python values and as texts."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from .schema import common_class

_MEMO_ATTRIBUTES = 50_000
_MEMO_BYTES = 512
_SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


class BadValue(ValueError):
    """An attribute or a body that cannot be decoded."""


def read_attributes(raws: Iterable[bytes]) -> dict[str, Any]:
    """The attributes that these KeyValue messages hold; of a key that comes twice the last. Raises BadValue."""
    return dict([_known_attribute(raw) if len(raw) <= _MEMO_BYTES else _read_attribute(raw) for raw in raws])


def _read_attribute(raw: bytes) -> tuple[str, Any]:
    try:
        pair = common_class("KeyValue").FromString(raw)
    except DecodeError:
        raise BadValue("an attribute cannot be decoded") from None
    return pair.key.decode("utf-8", "replace"), _plain(pair.value)


# The same attributes come with many points.
_known_attribute = lru_cache(_MEMO_ATTRIBUTES)(_read_attribute)


def read_value(raw: bytes) -> Any:
    """The value that an AnyValue message holds: text, bool, int, float, list, dict, bytes or None. Raises BadValue."""
    try:
        return _plain(common_class("AnyValue").FromString(raw))
    except DecodeError:
        raise BadValue("a value cannot be decoded") from None


def _plain(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "string_value":
        return value.string_value.decode("utf-8", "replace")
    if which == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if which == "kvlist_value":
        return {pair.key.decode("utf-8", "replace"): _plain(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, which) if which in ("bool_value", "int_value", "double_value", "bytes_value") else None


def text_of(value: Any) -> str:
    """A value as the text of a label or of a line: lists and maps as JSON, bytes in base64, nothing as ''."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, int) else msgspec.json.encode(without_specials(value)).decode()


def float_text(value: float) -> str:
    """A number in its shortest form: 10 for 10.0, 0.005, +Inf."""
    text = repr(value)
    return _SPECIAL.get(text) or (text.removesuffix(".0") if "e" not in text else format(value, ".17g"))


def without_specials(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinities are texts, bytes are base64."""
    if isinstance(value, dict):
        return {key: without_specials(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_specials(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def whole_number(value: Any, least: int, most: int) -> int | None:
    """A value as a whole number within bounds: an int, a whole float or digits in a text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        digits = value[1:] if value[:1] == "-" else value
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            return None
        value = int(value)
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            return None
        value = int(value)
    return value if isinstance(value, int) and least <= value <= most else None
