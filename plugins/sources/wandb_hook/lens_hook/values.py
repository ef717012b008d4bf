"""From what people log to numbers: which values are metrics, and when they have to be read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Union

Number = Union[int, float, str]  # the strings are "NaN", "Infinity" and "-Infinity"

_MAX_DEPTH = 8
_PLAIN = frozenset((float, int))
# Objects of these types cannot change after they were logged, so the worker may read them later. Numpy's are added when
# they are met.
_constant: set[type] = {float, int, bool, str, type(None), complex}


def snapshot(data: Mapping[Any, Any]) -> dict[Any, Any]:
    """A copy of `data` that later changes to the user's objects cannot reach.

    Plain numbers are copied as they are, at the price of a dict copy. Tensors, arrays and nested mappings are read
    at once (after wandb did, so that a device copy is already paid for).
    """
    for value in data.values():
        if type(value) not in _constant and not _is_constant(type(value)):
            return _flat(data)
    return dict(data)


def _is_constant(kind: type) -> bool:
    """Whether `kind` is a numpy scalar, which is then known as constant."""
    if kind.__module__ != "numpy" or not any(base.__name__ == "generic" for base in kind.__mro__):
        return False
    _constant.add(kind)
    return True


def _flat(data: Mapping[Any, Any]) -> dict[str, Number]:
    row: dict[str, Number] = {}
    _flatten("", data, row, 0)
    return row


def _flatten(prefix: str, data: Mapping[Any, Any], row: dict[str, Number], depth: int) -> None:
    for key, value in data.items():
        name = f"{prefix}{key}"
        if _is_mapping(value):
            if depth < _MAX_DEPTH and "_type" not in value:  # wandb's own encoding of media
                _flatten(name + ".", value, row, depth + 1)
            continue
        number = as_number(value)
        if number is not None:
            row[name] = number


def _is_mapping(value: Any) -> bool:
    try:
        return isinstance(value, Mapping)
    except Exception:  # noqa: BLE001 - a class that cannot even be asked what it is
        return False


def all_plain(data: Mapping[Any, Any]) -> bool:
    """Whether `data` is ready for the wire as it is: plain finite numbers, as nearly always."""
    found = data.values()
    try:
        # The sum is finite only if each of them is; an int beyond a float's range raises.
        return _PLAIN.issuperset(map(type, found)) and math.isfinite(math.fsum(found))
    except (OverflowError, ValueError):
        return False


def numbers(data: Mapping[Any, Any]) -> dict[str, Number]:
    """The metrics in a snapshot: name to JSON-ready number; everything that is none is left out."""
    row: dict[str, Number] = {}
    for name, value in data.items():
        if type(value) is float:
            row[name] = value if math.isfinite(value) else special(value)
            continue
        number = as_number(value)
        if number is not None:
            row[name] = number
    return row


class Special(str):
    """The wire's name of a float that JSON cannot hold, as opposed to the same text logged by somebody."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f'"{self}"'  # so that `repr` of every `Number` is JSON


_NAN, _INFINITY, _MINUS_INFINITY = Special("NaN"), Special("Infinity"), Special("-Infinity")


def special(value: float) -> Special:
    """The wire's name of a float that JSON cannot hold."""
    if value != value:
        return _NAN
    return _INFINITY if value > 0 else _MINUS_INFINITY


def as_number(value: Any) -> Number | None:
    """`value` as a JSON-ready number, or None if it is not a metric (text, media, arrays of many elements)."""
    try:
        return _as_number(value)
    except Exception:  # noqa: BLE001 - somebody's own class, whose methods may do anything
        return None


def _as_number(value: Any) -> Number | None:
    if isinstance(value, float):
        number = float(value)
        return number if math.isfinite(number) else special(number)
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 1023 else special(float("inf") if value > 0 else float("-inf"))
    if isinstance(value, str):
        return value if type(value) is Special else None
    if value is None or isinstance(value, (bytes, list, tuple, complex)):
        return None
    return _from_item(value)


def _from_item(value: Any) -> Number | None:
    """The one element of a numpy or torch scalar, told by what it can do: no framework is imported for this."""
    if not hasattr(value, "dtype"):
        return None
    count: Any = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    if callable(count) or count is None:
        value, count = value.numpy(), 1  # TensorFlow's eager tensors
    if count != 1:
        return None
    element = value.item()
    if isinstance(element, (int, float)):
        return as_number(element)
    # numpy's longdouble is no float of Python's, and its `item` is itself.
    return as_number(float(element)) if getattr(value.dtype, "kind", "") == "f" else None
