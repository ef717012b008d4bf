"""Reading JSON that other people's programs wrote: bare NaN tokens, and lists in which single items are wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from .errors import BadRequest

T = TypeVar("T")

# All that may be wrong with bytes that somebody else sent; msgspec raises the last two beside its own.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MAX_NAME_LENGTH = 4096
_MAX_DEPTH = 32

# A string up to its end or its first escape, or one of the tokens. No alternative can fail after a long match, and
# none repeats a group, so that neither time nor stack grows by more than the bytes that are passed.
_STRING_OR_SPECIAL = re.compile(rb'"[^"\\]*(?P<end>["\\]?)|-?Infinity|NaN')
_REST_OF_STRING = re.compile(rb'.?[^"\\]*(?P<end>["\\]?)', re.DOTALL)
_PLAIN_NUMBERS = frozenset({float, int, bool})
_SPECIALS = {b"NaN": b'"NaN"', b"Infinity": b'"Infinity"', b"-Infinity": b'"-Infinity"'}


def quote_bare_specials(body: bytes) -> bytes:
    """Put the tokens NaN, Infinity and -Infinity in quotes, outside strings; Python's json module writes them bare."""
    pieces: list[bytes] = []
    copied = place = 0
    while (found := _STRING_OR_SPECIAL.search(body, place)) is not None:
        quoted = _SPECIALS.get(found[0])
        if quoted is not None:
            pieces += (body[copied : found.start()], quoted)
            copied = found.end()
        while found["end"] == b"\\":
            found = _REST_OF_STRING.match(body, found.end())
            assert found is not None  # the pattern matches everything, nothing included
        place = found.end()
    return b"".join((*pieces, body[copied:])) if pieces else body


def decode_json(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode JSON that may hold bare NaN tokens. Raises msgspec.ValidationError, or BadRequest if it is not JSON."""
    try:
        return _decode_json(body, decoder)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def _decode_json(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        if b"NaN" not in body and b"Infinity" not in body:
            raise _not_json(error) from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        return decoder.decode(quote_bare_specials(body))
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise _not_json(error) from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None


def _not_json(error: msgspec.DecodeError) -> BadRequest:
    return BadRequest(f"the body is not JSON: {error}")


class Items(msgspec.Struct, Generic[T], frozen=True):
    """The items of a list that could be read, with their places, and those that could not: (index, reason)."""

    good: list[T]
    rejected: list[tuple[int, str]]


class ItemDecoder(Generic[T]):
    """Decodes the items of a list one by one, where decoding them all at once stopped at a wrong one."""

    def __init__(self, item_type: Any, *, strict: bool) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(item_type, strict=strict)

    def decode_each(self, raws: list[msgspec.Raw]) -> Items[T]:
        """Decode items one by one; a wrong one is reported and loses no other."""
        good: list[T] = []
        rejected: list[tuple[int, str]] = []
        for index, raw in enumerate(raws):
            try:
                good.append(self._decoder.decode(raw))
            except DECODE_ERRORS as error:
                rejected.append((index, str(error)))
        return Items(good, rejected)


def numeric_items(data: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """The numbers of a logged dictionary, nested ones under dotted names, as wandb flattens them.

    Booleans are 0 and 1; the texts "NaN", "Infinity" and "-Infinity" are numbers; other texts, lists, null and
    media (a dictionary with `_type`) are not metrics and are left out. Raises ValueError for a name that is too long
    or too deep: one of megabytes above thousands of numbers would be written out for each of them.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"metrics are nested more than {_MAX_DEPTH} levels deep")
    for key, value in data.items():
        if len(prefix) + len(key) > MAX_NAME_LENGTH:
            raise ValueError(f"a metric's name is longer than {MAX_NAME_LENGTH} characters: {(prefix + key)[:50]}…")
        if isinstance(value, (int, float)):
            yield prefix + key, _as_float(value)
        elif isinstance(value, str):
            if value in ("NaN", "Infinity", "-Infinity"):
                yield prefix + key, float(value)
        elif isinstance(value, Mapping) and "_type" not in value:
            yield from numeric_items(value, f"{prefix}{key}.", depth + 1)


def numbers_of(data: Mapping[str, Any]) -> dict[str, float]:
    """Return the result of `numeric_items` as a dictionary; at once where all values are plain numbers, as they mostly
    are.
    """
    if _PLAIN_NUMBERS.issuperset(map(type, data.values())) and len(max(data, key=len, default="")) <= MAX_NAME_LENGTH:
        try:
            return dict(zip(data, map(float, data.values()), strict=True))
        except OverflowError:  # a whole number that is too large for a float, which is infinite one by one
            return dict(numeric_items(data))
    return dict(numeric_items(data))


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
