"""OTLP in JSON → the same request in protobuf, item by item: a wrong one is counted and loses no other.

It is not protobuf's own JSON mapping: ids are hex, enumerations are numbers, unknown fields are passed over, and 64-bit
integers are texts or numbers.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor

from lens_core import BadRequest
from lens_core.plugin_api.protobuf import DELIMITED, FIXED32, FIXED64, VARINT, varint

from .schema import generated_class
from .turns import MAX_PARTS
from .values import BadValue

_object = msgspec.json.Decoder(dict[str, Any])
_IDS = frozenset({"trace_id", "span_id", "parent_span_id"})
# Lists whose members are refused one by one, each with all that it holds; refusals are counted in items.
_ITEMS = frozenset({"data_points", "log_records", "spans"})
_CONTAINERS = frozenset({"metrics"}) | {
    f"{at}_{what}" for at in ("resource", "scope") for what in ("metrics", "logs", "spans")
}
_SPECIALS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBER_TEXT = re.compile(r"-?[0-9.eE+-]{1,40}")
_INTEGER_TEXT = re.compile(r"-?[0-9]{1,20}")
_MAX_DEPTH = 100
_MAX_DIGITS = 400  # no double is larger
_MESSAGES = 5
# The bounds of whole numbers, the way they are written, and how: as a struct, or as a varint where that is ''.
_WHOLE: Mapping[int, tuple[int, int, int, str]] = {
    FieldDescriptor.TYPE_SINT32: (-(2**31), 2**31 - 1, VARINT, "zigzag"),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1, VARINT, ""),
    FieldDescriptor.TYPE_ENUM: (-(2**31), 2**31 - 1, VARINT, ""),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1, VARINT, ""),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1, VARINT, ""),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1, VARINT, ""),
    FieldDescriptor.TYPE_FIXED32: (0, 2**32 - 1, FIXED32, "<I"),
    FieldDescriptor.TYPE_FIXED64: (0, 2**64 - 1, FIXED64, "<Q"),
    FieldDescriptor.TYPE_SFIXED64: (-(2**63), 2**63 - 1, FIXED64, "<q"),
}


class Encoded(msgspec.Struct):
    """A request in protobuf, how many of its items are not in it, and why."""

    body: bytes = b""
    refused: int = 0
    messages: list[str] = []


def encode_json(signal: str, body: bytes) -> Encoded:
    """The protobuf form of a request in JSON. Raises BadRequest where it is no JSON object of a request's shape."""
    if body.count(b"{") > MAX_PARTS:
        raise BadRequest(f"the request has more than {MAX_PARTS:,} parts; send smaller batches")
    try:
        decoded: Any = _object.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decoded = _decode_leniently(body)
    encoded = Encoded()
    try:
        encoded.body = _encode_message(generated_class(signal).DESCRIPTOR, decoded, encoded, 0)
    except BadValue as error:
        raise BadRequest(f"the body is not an OTLP request in JSON: {error}") from None
    return encoded


def _decode_leniently(body: bytes) -> Any:
    """JSON with bare NaN, with texts that are no Unicode, or with numbers that are too large: these stay texts, and are
    refused where they stand. Raises BadRequest.
    """
    try:
        text = body.decode("utf-8", "replace")
        return json.loads(text, parse_int=_integer_or_text, parse_float=_float_or_text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def _integer_or_text(text: str) -> int | str:
    return int(text) if len(text) <= _MAX_DIGITS else text


def _float_or_text(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


@lru_cache(maxsize=256)
def _fields_of(descriptor: Any) -> Mapping[str, Any]:
    """The fields of a message by their names in JSON, and by those of the protobuf form."""
    fields = {field.name: field for field in descriptor.fields}
    return {**fields, **{field.json_name: field for field in descriptor.fields}}


def _encode_message(descriptor: Any, value: Any, encoded: Encoded, depth: int) -> bytes:
    """A message of a JSON object. Raises BadValue."""
    if not isinstance(value, dict):
        raise BadValue(f"{descriptor.name} must be an object, not {_shown(value)}")
    if depth > _MAX_DEPTH:
        raise BadValue(f"{descriptor.name} is nested more than {_MAX_DEPTH} levels deep")
    known = _fields_of(descriptor)
    pieces: list[bytes] = []
    for key, item in value.items():
        field = known.get(key)
        if field is None or item is None:
            continue
        if not _is_repeated(field):
            pieces.append(_encode_field(field, item, encoded, depth))
        elif isinstance(item, list):
            pieces.extend(_encode_list(field, item, encoded, depth))
        else:
            raise BadValue(f"{field.json_name} must be a list, not {_shown(item)}")
    return b"".join(pieces)


def _is_repeated(field: Any) -> bool:
    # Newer versions of protobuf have the property, and warn of the label.
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED)


def _encode_list(field: Any, items: list[Any], encoded: Encoded, depth: int) -> Iterator[bytes]:
    is_apart = field.name in _ITEMS or field.name in _CONTAINERS
    for item in items:
        try:
            yield _encode_field(field, item, encoded, depth)
        except BadValue as error:
            if not is_apart:
                raise
            encoded.refused += 1 if field.name in _ITEMS else _count_items(item)
            if len(encoded.messages) < _MESSAGES and str(error) not in encoded.messages:
                encoded.messages.append(str(error))


def _count_items(value: Any) -> int:
    """The items below a container that is refused as a whole; at least one."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        for key, item in one.items() if isinstance(one, dict) else ():
            name = re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key)
            if name in _ITEMS and isinstance(item, list):
                count += len(item)
            elif isinstance(item, list) and name in _CONTAINERS:
                waiting.extend(item)
            elif isinstance(item, dict):
                waiting.append(item)
    return max(count, 1)


def _encode_field(field: Any, item: Any, encoded: Encoded, depth: int) -> bytes:
    """One value with its tag. Raises BadValue."""
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _encode_bytes(field, _encode_message(field.message_type, item, encoded, depth + 1))
    if field.type == FieldDescriptor.TYPE_STRING:
        if not isinstance(item, str):
            raise BadValue(f"{field.json_name} must be a text, not {_shown(item)}")
        return _encode_bytes(field, item.encode("utf-8", "replace"))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _encode_bytes(field, _bytes_of(field, item))
    if field.type == FieldDescriptor.TYPE_BOOL:
        if not isinstance(item, bool):
            raise BadValue(f"{field.json_name} must be true or false, not {_shown(item)}")
        return varint(field.number << 3 | VARINT) + varint(item)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return varint(field.number << 3 | FIXED64) + struct.pack("<d", _double_of(field, item))
    least, most, kind, form = _WHOLE[field.type]
    number = _whole_of(field, item, least, most)
    tag = varint(field.number << 3 | kind)
    if form == "zigzag":
        return tag + varint((number << 1) ^ (number >> 31))
    return tag + (struct.pack(form, number) if form else varint(number & 0xFFFFFFFFFFFFFFFF))


def _encode_bytes(field: Any, value: bytes) -> bytes:
    return varint(field.number << 3 | DELIMITED) + varint(len(value)) + value


def _bytes_of(field: Any, item: Any) -> bytes:
    try:
        if isinstance(item, str):
            return bytes.fromhex(item) if field.name in _IDS else base64.b64decode(item, validate=True)
    except (ValueError, binascii.Error):
        pass
    form = "hex" if field.name in _IDS else "base64"
    raise BadValue(f"{field.json_name} must be {form}, not {_shown(item)}")


def _double_of(field: Any, item: Any) -> float:
    try:
        if isinstance(item, (int, float)) and not isinstance(item, bool):
            return float(item)
        if isinstance(item, str) and item in _SPECIALS:
            return _SPECIALS[item]
        if isinstance(item, str) and _NUMBER_TEXT.fullmatch(item) and math.isfinite(number := float(item)):
            return number
    except (ValueError, OverflowError):
        pass
    raise BadValue(f"{field.json_name} must be a number, not {_shown(item)}")


def _whole_of(field: Any, item: Any, least: int, most: int) -> int:
    number: Any = item
    if isinstance(item, str):
        if field.type == FieldDescriptor.TYPE_ENUM:
            # ASCII, like all names: the library fails at half a surrogate.
            found = field.enum_type.values_by_name.get(item) if item.isascii() else None
            number = found.number if found is not None else item
        if isinstance(number, str) and _INTEGER_TEXT.fullmatch(number):
            number = int(number)
    elif isinstance(item, float) and math.isfinite(item) and item == int(item):
        number = int(item)
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise BadValue(f"{field.json_name} must be a whole number from {least} to {most}, not {_shown(item)}")
    return number


def _shown(value: Any) -> str:
    """The beginning of a value, for a message."""
    text = str(value) if isinstance(value, (str, int, float)) else type(value).__name__
    return repr(text[:50])
