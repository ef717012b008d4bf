"""Numbers as training logs print them: `1.82E+00`, `NAN`, `5,856`, `11.5K`, `66.9GiB(37.5%)`, `tensor(5e-07)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from ...plugin_api.log_formats import Field

_NUMBER = re.compile(
    r"[\s'\"]*(?:(?:tensor|np\.\w+|array)\()?\s*"
    r"([-+]?(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?|[-+]?\.\d+(?:[eE][-+]?\d+)?"
    r"|[-+]?(?:nan|inf(?:inity)?)\b(?:\.0\b)?)"
    r"\s*([A-Za-z%µ_/]*)",
    re.IGNORECASE,
)
# A printed number with its unit and average is shorter; what is longer is looked at no further.
_LONGEST = 256
_AVERAGE = re.compile(r"^\s*(?:/|\(\s*(?:avg:?\s*)?)\s*")
_IN_BRACKETS = re.compile(r"\(\s*([-+\d.eE]+)\s*(%?)\s*\)")
_LARGE = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_MEMORY = {"": None, "g": 1.0, "m": 1 / 1024, "k": 1 / 1024**2, "t": 1024.0, "b": 1 / 2**30}
_TIME = {"ms": 1.0, "s": 1000.0, "sec": 1000.0, "secs": 1000.0, "seconds": 1000.0, "us": 1e-3, "µs": 1e-3, "min": 6e4}
_COMPUTE = {"g": 1e-3, "t": 1.0, "p": 1e3}


def scan(text: str) -> tuple[float, str, int] | None:
    """The number at the beginning of a text, the unit after it and where it ends; None where there is none."""
    match = _NUMBER.match(text, 0, _LONGEST)
    if match is None:
        return None
    number = match.group(1).replace(",", "")
    if number[-3:-2] and number[-3:-2] in "nNfFyY":  # NeMo's `nan.0`
        number = number.removesuffix(".0")
    return float(number), match.group(2), match.end()


def parse_number(text: str) -> float | None:
    """A text that is a number, perhaps quoted, with thousands separators or a K, M, G, B after it; else None."""
    try:
        return float(text)
    except ValueError:
        scanned = scan(text)
    if scanned is None:
        return None
    value, unit, end = scanned
    if not unit or unit == "%":
        return value if not text[end:].strip(" \t'\")%") else None
    large = _LARGE.get(unit.lower()) if unit != "m" else None  # minutes
    return value * large if large is not None and not text[end:].strip() else None


def _apply_unit(value: float, unit: str, factor: float) -> float:
    return _times(value, (_LARGE.get(unit.lower(), 1.0) if len(unit) == 1 else 1.0) * factor)


def _times(value: float, factor: float) -> float:
    """A product as one would write it: 16.1764 s are 16176.4 ms, not 16176.400000000001."""
    return round(value * factor, 9) if factor > 1.0 else value * factor


def _time(value: float, unit: str, factor: float) -> float:
    known = _TIME.get(unit.lower().split("/")[0])
    return _times(value, known) if known is not None else _apply_unit(value, unit, factor)


def _memory(value: float, unit: str, factor: float) -> float:
    known = _MEMORY.get(unit[:1].lower())
    return value * (known if known is not None else factor)


def _compute(value: float, unit: str, factor: float) -> float:
    named = re.search(r"([gtp])fl", unit.lower())
    return value * (_COMPUTE[named.group(1)] if named else factor)


def _percent(value: float, unit: str, factor: float) -> float:
    if "%" in unit or factor != 1.0:
        return value * (1.0 if "%" in unit else factor)
    return value * 100.0 if 0.0 <= value <= 1.0 else value


_CONVERT: dict[str, Callable[[float, str, float], float]] = {
    "number": _apply_unit,
    "rounded": _apply_unit,
    "time": _time,
    "memory": _memory,
    "compute": _compute,
    "percent": _percent,
}


# Puts what a printed value holds under its stored names; the first to set a name keeps it.
Reader = Callable[[dict[str, float], str], None]


def make_reader(field: Field) -> Reader:
    """Return the function that reads printed values of a field."""
    names, quick, convert = field.names, _QUICK.get(field.kind, _read_plainly), _CONVERT.get(field.kind)
    if convert is None:  # a text
        return lambda values, text: None
    if isinstance(names, tuple):
        return partial(_read_parts, field, names)

    def read(values: dict[str, float], text: str) -> None:
        if quick(values, field, names, text):
            return
        scanned = scan(text)
        if scanned is None:
            return
        value, unit, end = scanned
        values.setdefault(names, convert(value, unit.rstrip("/"), field.factor))
        _read_average(values, field, names, text[end - 1 :] if unit.endswith("/") else text[end:])

    return read


def _read_plainly(values: dict[str, float], field: Field, name: str, text: str) -> bool:
    """The quick way for what most lines hold: a bare number, or two with a slash between them."""
    now, slash, average = text.partition("/")
    try:
        value = float(now)
        behind = float(average) if slash else None
    except ValueError:
        return False
    factor = field.factor
    values.setdefault(name, value if factor == 1.0 else _times(value, factor))
    if behind is not None:
        values.setdefault(f"{name}_avg", behind if factor == 1.0 else _times(behind, factor))
    return True


def _read_share(values: dict[str, float], field: Field, name: str, text: str) -> bool:
    """The quick way for `0.17%`."""
    if text[-1:] != "%":
        return False
    try:
        values.setdefault(name, float(text[:-1]))
    except ValueError:
        return False
    return True


def _read_memory(values: dict[str, float], field: Field, name: str, text: str) -> bool:
    """The quick way for `66.91GiB(37.51%)`."""
    used, unit, share = text.partition("GiB(")
    if not unit or share[-2:] != "%)":
        return _read_plainly(values, field, name, text)
    try:
        value, ratio = float(used), float(share[:-2])
    except ValueError:
        return False
    values.setdefault(name, value)
    values.setdefault(f"{name}_ratio", ratio)
    return True


def _read_rounded(values: dict[str, float], field: Field, name: str, text: str) -> bool:
    """The quick way for what is 0 where it was rounded off, and is no number then."""
    return text.strip(" '\"") in ("0.000", "-0.000") or _read_plainly(values, field, name, text)


_QUICK = {"percent": _read_share, "memory": _read_memory, "rounded": _read_rounded}


def _read_average(values: dict[str, float], field: Field, name: str, rest: str) -> None:
    """Read what follows a value: `/Y` and `(Y)` are its running average, `(37.5%)` after memory is the share used."""
    if field.kind == "memory":
        share = _IN_BRACKETS.search(rest, 0, _LONGEST)
        if share is not None and share.group(2):
            values.setdefault(f"{name}_ratio", float(share.group(1)))
        return
    behind = _AVERAGE.match(rest, 0, _LONGEST)
    if behind is None:
        return
    scanned = scan(rest[behind.end() :])
    if scanned is not None:
        values.setdefault(f"{name}_avg", _CONVERT[field.kind](scanned[0], scanned[1], field.factor))


def _read_parts(field: Field, names: tuple[str, ...], values: dict[str, float], text: str) -> None:
    if names[0] in values:  # two sources of one fact on a line (hip and rocm): the first is kept whole
        return
    for name, part in zip(names, text.strip(" '\"").split("/"), strict=False):
        if field.kind == "memory" and _read_gigabytes(values, name, part):
            continue
        scanned = scan(part)
        if scanned is None:
            continue
        kind = "percent" if name.endswith("ratio") else field.kind
        values[name] = _CONVERT[kind](scanned[0], scanned[1], field.factor if kind == field.kind else 1.0)
        share = _IN_BRACKETS.search(part, 0, _LONGEST)
        if share is not None and share.group(2):
            values.setdefault(f"{names[0]}_ratio", float(share.group(1)))


def _read_gigabytes(values: dict[str, float], name: str, part: str) -> bool:
    """The quick way for `153.81GB` and `60.09%`."""
    try:
        if part.endswith("GB"):
            values[name] = float(part[:-2])
        elif part.endswith("%"):
            values[name] = float(part[:-1])
        else:
            return False
    except ValueError:
        return False
    return True
