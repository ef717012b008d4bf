"""Reads a `.wandb` file: what wandb itself recorded, the truth that the hook is held against.

Format: a 7-byte header, then LevelDB log framing in 32 KiB blocks, each record one protobuf message.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK = 32 * 1024
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY = 2
_RUN = 17


def history(path: Path) -> list[dict[str, Any]]:
    """All history rows: flattened name to value, `_step` among them."""
    return [_row(field) for number, field in _records(path) if number == _HISTORY]


def points(path: Path) -> list[tuple[int, str, Any]]:
    """All numbers of the user's own keys, as the hook has to report them: (step, name, value)."""
    found: list[tuple[int, str, Any]] = []
    for row in history(path):
        for name, value in row.items():
            of_media = f"{name.rpartition('.')[0]}._type" in row
            if not name.startswith("_") and not of_media and isinstance(value, (int, float)):
                found.append((row["_step"], name, _wire(value)))
    return found


def by_run(directory: Path) -> dict[str, Path]:
    """The files below a WANDB_DIR by run id."""
    return {path.stem[len("run-") :]: path for path in directory.glob("wandb/*run-*/run-*.wandb")}


def _wire(value: float) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _row(data: bytes) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for number, item in _fields(data):
        if number == 1:
            names: list[str] = []
            text = "null"
            for field, value in _fields(item):
                if field in (1, 2):
                    names.append(value.decode())
                elif field == 16:
                    text = value.decode()
            _flatten(".".join(name for name in names if name), json.loads(text), row)
    return row


def _flatten(name: str, value: Any, row: dict[str, Any]) -> None:
    if isinstance(value, dict) and "_type" not in value:
        for key, item in value.items():
            _flatten(f"{name}.{key}", item, row)
    else:
        row[name] = value


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    for message in _messages(path.read_bytes()):
        for number, value in _fields(message):
            if number in (_HISTORY, _RUN):
                yield number, value


def _messages(data: bytes) -> Iterator[bytes]:
    position, parts = 7, b""
    while position + 7 <= len(data):
        room = _BLOCK - position % _BLOCK
        if room < 7:
            position += room
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        chunk = data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (_FULL, _FIRST):
            parts = b""
        parts += chunk
        if kind in (_FULL, _LAST):
            yield parts


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a protobuf message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == 0:
            _, position = _varint(data, position)
        elif kind == 2:
            length, position = _varint(data, position)
            yield tag >> 3, data[position : position + length]
            position += length
        else:
            position += 8 if kind == 1 else 4


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
