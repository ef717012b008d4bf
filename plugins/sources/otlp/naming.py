"""Names in Prometheus of what OTLP sends: as OpenTelemetry's compatibility specification has it.

Other characters become underscores, the unit is written out after the name, a counter ends in `_total` and a gauge of
unit 1 in `_ratio`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9:]+")
_NOT_IN_LABEL = re.compile(r"[^a-zA-Z0-9_]")
_BRACES = re.compile(r"\{[^{}]*\}")
_UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
_PER = {
    "s": "second",
    "m": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
    "mo": "month",
    "y": "year",
}


@lru_cache(maxsize=20_000)
def metric_name(name: str, unit: str, kind: str, suffixes: bool) -> str:
    """The name of a metric; '' if none of its characters is allowed. `kind` is gauge, counter or something else."""
    words = [word for word in _NOT_ALLOWED.split(name) if word]
    if not words:
        return ""
    if suffixes:
        for word in _unit_words(unit):
            if word and word not in words:
                words.append(word)
        for suffix, wanted in (("total", kind == "counter"), ("ratio", unit == "1" and kind == "gauge")):
            if wanted:
                words = [*(word for word in words if word != suffix), suffix]
    text = "_".join(words)
    return f"_{text}" if text[0].isdigit() else text


def _unit_words(unit: str) -> Iterable[str]:
    main, _, per = _BRACES.sub("", unit).strip().partition("/")
    main, per = main.strip(), per.strip()
    yield _UNITS.get(main, "_".join(word for word in _NOT_ALLOWED.split(main) if word))
    if per:
        yield "per_" + _PER.get(per, "_".join(word for word in _NOT_ALLOWED.split(per) if word))


@lru_cache(maxsize=20_000)
def label_name(key: str) -> str:
    """The name of an attribute's label; '' for an attribute without a name."""
    text = _NOT_IN_LABEL.sub("_", key)
    if not text:
        return ""
    # Names that begin with two underscores are Prometheus' own.
    return f"key_{text}" if text[0].isdigit() else f"key{text}" if text.startswith("__") else text


def label_pairs(attributes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Labels of attributes; the values of those that get one name are joined, in the order of their keys."""
    found: dict[str, str] = {}
    for key, text in sorted(attributes):
        name = label_name(key)
        if name and text:
            found[name] = f"{found[name]};{text}" if name in found else text
    return found
