"""Reads the messages of a `run-ID.wandb` file.

The framing of a `.wandb` file: a header of 7 bytes, then the log format of LevelDB in blocks of 32 KiB.

Header: `:W&B`, 0xBEE1 (u16), version 0. A chunk is checksum (u32), length (u16), type, data; it never crosses the end
of a block (blocks count from the start of the file), and fewer than 7 bytes at a block's end are padding. Types: 1 is
a whole record, 2, 3 and 4 are its first, middle and last part. The checksum is CRC-32 (zlib's) over type and data.
All little endian (wandb/sdk/internal/datastore.py up to 0.29, core/internal/transactionlog since).

Messages of a `.wandb` file (wandb/proto/wandb_internal.proto), read by hand, of wandb 0.16 to 0.31.

Record: 2 history, 5 config, 7 stats, 12 metric, 17 run, 18 exit. History: 1 item, 2 step (1 number). Item: 1 key,
2 nested_key, 16 value_json; typed forms since 0.31: 4 bool, 5 int (zigzag), 6 double. Stats: 2 timestamp, 3 item.
Metric: 1 name, 2 glob_name, 4 step_metric. Run: 1 run_id, 2 entity, 3 project, 4 config, 6 run_group, 7 job_type,
8 display_name, 9 notes, 10 tags, 12 sweep_id, 17 start_time (1 seconds, 2 nanos), 21 git (1 remote_url, 2 commit).
Config: 1 update, 2 remove, both 1 key, 2 nested_key, 16 value_json. Exit: 1 exit_code.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from lens_core.plugin_api.protobuf import DELIMITED, FIXED64, VARINT, WireError, fields, zigzag


class WandbOfflineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the wandb_offline collector.

    `paths`: directories below which `run-ID.wandb` files are looked for (a WANDB_DIR, a home, a shared disk).
    `workload`: whose rows these are; `{entity}`, `{project}` and `{run}` stand for what the file says. `online`: read
    the logs of runs that were online too; leave it off where the hook sees those. `system_metrics`: wandb's own
    measurements of the machine as metrics `wandb.system.NAME`. `bytes_at_once`: so much is read and held in memory at
    one time. `max_files`: logs that are followed.
    """

    paths: Annotated[list[str], Meta(min_length=1)]
    workload: str = "{run}"
    online: bool = False
    system_metrics: bool = False
    bytes_at_once: Annotated[int, Meta(ge=64 * 1024, le=256 * 1024 * 1024)] = 4 * 1024 * 1024
    max_files: Annotated[int, Meta(ge=1)] = 10_000


BLOCK = 32 * 1024
HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_CHUNK = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class Framed(NamedTuple):
    """The records read: the end of the last whole record, and how many chunks were damaged."""

    end: int
    records: int
    damaged: int


def read_records(data: bytes, start: int, take: Callable[[bytes, int], None]) -> Framed:
    """Hand the whole records in `data`, which stands at `start` of its file, to `take`, with the offset after each.

    A chunk that is damaged is waited for as long as its block may still be written; once there are bytes after its
    block, the rest of the block is given up, as LevelDB does.
    """
    place, end, records, damaged = 0, 0, 0, 0
    parts: list[bytes] | None = None
    size = len(data)
    while place < size:
        room = BLOCK - (start + place) % BLOCK
        if room < _CHUNK.size:
            place += room
            continue
        chunk = _chunk(data, place, room)
        if chunk is None:
            if place + room >= size:
                break
            damaged += 1
            place += room
            parts = None
            end = place
            continue
        kind, content = chunk
        place += _CHUNK.size + len(content)
        if kind in (_FULL, _FIRST):
            parts = []
        if parts is None:
            end = place  # the rest of a record whose beginning is lost
            continue
        parts.append(content)
        if kind in (_FULL, _LAST):
            take(b"".join(parts), start + place)
            parts, end = None, place
            records += 1
    return Framed(start + end, records, damaged)


def _chunk(data: bytes, place: int, room: int) -> tuple[int, bytes] | None:
    """Type and data of a chunk; None when it is not whole, or damaged."""
    if place + _CHUNK.size > len(data):
        return None
    checksum, length, kind = _CHUNK.unpack_from(data, place)
    last = place + _CHUNK.size + length
    if not _FULL <= kind <= _LAST or _CHUNK.size + length > room or last > len(data):
        return None
    if zlib.crc32(data[place + 6 : last]) != checksum:
        return None
    return kind, data[place + _CHUNK.size : last]


HISTORY, CONFIG, STATS, METRIC, RUN, EXIT = 2, 5, 7, 12, 17, 18
WANTED = frozenset((HISTORY, CONFIG, STATS, METRIC, RUN, EXIT))
_DOUBLE = struct.Struct("<d")
_MAX_DEPTH = 8


class HistoryRow(msgspec.Struct, frozen=True):
    """A row of the history: its step (None when only the writer's counter knows), time and the user's numbers."""

    step: int | None
    time: float | None
    values: dict[str, float]


# Of the run's own record; `_wandb` among the settings is wandb's own.
_RUN_TEXTS = {1: "run_id", 2: "entity", 3: "project", 6: "group", 7: "job_type", 8: "name", 9: "notes", 12: "sweep"}
_OWN_SETTINGS = "_wandb"


class RunFacts(msgspec.Struct):
    """The facts of a run that its log states."""

    texts: dict[str, str]
    tags: list[str]
    config: dict[str, Any]
    started: float | None


def body_of(record: bytes) -> tuple[int, bytes] | None:
    """The one part of a record that is wanted here, by its field number. Raises WireError for a damaged record."""
    for field in fields(record):
        if field.number in WANTED and field.kind == DELIMITED:
            return field.number, field.value
    return None


def read_history(body: bytes) -> HistoryRow:
    """A history record. Raises WireError."""
    step: int | None = None
    values: dict[str, float] = {}
    media: set[str] = set()
    for field in fields(body):
        if field.number == 1 and field.kind == DELIMITED:
            _item(field.value, values, media)
        elif field.number == 2 and field.kind == DELIMITED:
            step = next((inner.value for inner in fields(field.value) if inner.number == 1), 0)
    named = values.pop("_step", None)
    time = values.pop("_timestamp", None)
    # The item is always there; the field is missing in 0.16.
    known = int(named) if named is not None and named == named else step
    own = {name: value for name, value in values.items() if not name.startswith("_")}
    if media:
        own = {name: value for name, value in own.items() if name.rpartition(".")[0] not in media}
    return HistoryRow(known, time, own)


def read_stats(body: bytes) -> tuple[float | None, dict[str, float]]:
    """Measurements of the machine: when, and the values by name. Raises WireError."""
    time: float | None = None
    values: dict[str, float] = {}
    for field in fields(body):
        if field.number == 2 and field.kind == DELIMITED:
            time = _timestamp(field.value)
        elif field.number == 3 and field.kind == DELIMITED:
            _item(field.value, values, set())
    return time, values


def read_metric(body: bytes) -> tuple[str, str] | None:
    """Parse a `define_metric`: (name or pattern, the metric that is its axis); None without an axis."""
    found = _texts(body, (1, 2, 4))
    name = found.get(1) or found.get(2, "")
    axis = found.get(4, "")
    return (name, axis) if name and axis else None


def read_run(body: bytes) -> RunFacts:
    """The run's ids, names, tags and configuration, and when it started. Raises WireError."""
    found = RunFacts({}, [], {}, None)
    for field in fields(body):
        if field.kind != DELIMITED:
            continue
        if field.number in _RUN_TEXTS:
            found.texts[_RUN_TEXTS[field.number]] = field.value.decode("utf-8", "replace")
        elif field.number == 10:
            found.tags.append(field.value.decode("utf-8", "replace"))
        elif field.number == 4:
            update_config(found.config, field.value)
        elif field.number == 17:
            found.started = _timestamp(field.value)
        elif field.number == 21:
            found.texts["commit"] = _texts(field.value, (2,)).get(2, "")
    return found


def update_config(config: dict[str, Any], body: bytes) -> None:
    """Apply a message of changed and removed settings. Raises WireError."""
    for field in fields(body):
        if field.number not in (1, 2) or field.kind != DELIMITED:
            continue
        path, text = [], b"null"
        for inner in fields(field.value):
            if inner.number in (1, 2) and inner.kind == DELIMITED and inner.value:
                path.append(inner.value.decode("utf-8", "replace"))
            elif inner.number == 16 and inner.kind == DELIMITED:
                text = inner.value
        if path and path[0] != _OWN_SETTINGS:
            _set_config(config, path, text, remove=field.number == 2)


def _set_config(config: dict[str, Any], path: list[str], text: bytes, *, remove: bool) -> None:
    *outer, last = path
    for name in outer:
        inner = config.get(name)
        if not isinstance(inner, dict):
            inner = config[name] = {}
        config = inner
    if remove:
        config.pop(last, None)
        return
    try:
        config[last] = json.loads(text)
    except ValueError:
        raise WireError("a setting is no JSON") from None


def read_exit(body: bytes) -> int:
    """The exit code; protobuf leaves out a zero. Raises WireError."""
    code = next((field.value for field in fields(body) if field.number == 1 and field.kind == VARINT), 0)
    return int(code - (1 << 64) if code >= 1 << 63 else code)


def _texts(body: bytes, numbers: tuple[int, ...]) -> dict[int, str]:
    return {
        field.number: field.value.decode("utf-8", "replace")
        for field in fields(body)
        if field.number in numbers and field.kind == DELIMITED
    }


def _timestamp(body: bytes) -> float:
    parts = {field.number: field.value for field in fields(body) if field.kind == VARINT}
    return float(parts.get(1, 0) + parts.get(2, 0) / 1e9)


def _item(item: bytes, values: dict[str, float], media: set[str]) -> None:
    """One key and its value; what is no number is left out, media are remembered by their name."""
    names: list[str] = []
    for field in fields(item):
        if field.number in (1, 2) and field.kind == DELIMITED:
            if field.value:
                names.append(field.value.decode("utf-8", "replace"))
        elif field.number == 16 and field.kind == DELIMITED:
            _from_json(".".join(names), field.value, values, media)
        elif field.number == 4 and field.kind == VARINT:
            values[".".join(names)] = float(bool(field.value))
        elif field.number == 5 and field.kind == VARINT:
            values[".".join(names)] = float(zigzag(field.value))
        elif field.number == 6 and field.kind == FIXED64:
            (values[".".join(names)],) = _DOUBLE.unpack(field.value)


def _from_json(name: str, text: bytes, values: dict[str, float], media: set[str]) -> None:
    first = text[:1]
    if first in b"-0123456789NI" and first:
        try:
            values[name] = float(text)  # bare NaN and Infinity too
        except ValueError:
            raise WireError("a value is no JSON") from None
    elif text in (b"true", b"false"):
        values[name] = float(text == b"true")
    elif first == b"{":
        _flatten(name, _object(text), values, media, 0)
    elif first == b'"' and name.endswith("._type"):
        media.add(name.removesuffix("._type"))


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise WireError("a value is no JSON") from None
    return found if isinstance(found, Mapping) else {}


def _flatten(name: str, content: Mapping[str, Any], values: dict[str, float], media: set[str], depth: int) -> None:
    if "_type" in content or depth > _MAX_DEPTH:
        return
    for key, value in content.items():
        inner = f"{name}.{key}"
        if isinstance(value, Mapping):
            _flatten(inner, value, values, media, depth + 1)
        elif isinstance(value, (int, float)):
            values[inner] = _as_float(value)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
