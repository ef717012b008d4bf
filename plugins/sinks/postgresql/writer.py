"""Writing rows: one transaction that adds the new ones, merges into those that exist, and moves the cursor.

The streams of a batch are locked first, in the order of their ids, so that what is read about them stays true: rows
beyond a stream's last step are new without looking, the catalogue is exact, and no row is left without its stream,
which is why rows need no foreign key. Subjects, which several daemons may share, are locked last and only until the
commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from .address import StreamsGone
from .encoding import COPY_COLUMNS, EncodedRow, StreamChange, copy_text, encode_json
from .figures import update_catalogue, update_streams
from .grouping import Pending, StreamKey, state_of
from .identity import Connection, StreamId
from .rows import StoredRow, from_stored, merge, to_stored

_COPY = f"copy lens_row ({COPY_COLUMNS}) from stdin"
_PIECE_ROWS = 1000  # encoded at one time, while PostgreSQL stores those before
_IN_THREAD_ROWS = 500

Streams: TypeAlias = Mapping[StreamKey, dict[int, Pending]]
_decode_metrics = msgspec.json.Decoder(dict[str, float | str]).decode
_decode_tags = msgspec.json.Decoder(dict[str, dict[str, str]]).decode
_decode_sequences = msgspec.json.Decoder(dict[str, tuple[int | None, int]]).decode


class _HistoryEntry(msgspec.Struct):
    sequence: int
    rank: int | None
    values: dict[str, float | str]


_decode_history = msgspec.json.Decoder(list[_HistoryEntry]).decode


class Update(NamedTuple):
    """A row that exists and gets other columns."""

    stream_id: int
    row_step: int
    row: EncodedRow


class Fresh(NamedTuple):
    """Rows of one stream that the database does not have; `change` is to take note of them."""

    stream_id: int
    key: StreamKey
    rows: Sequence[tuple[int, Pending]]
    change: StreamChange


class Plan(NamedTuple):
    """All that a batch changes about rows."""

    fresh: list[Fresh]
    updates: list[Update]
    changes: dict[int, StreamChange]


async def write_rows(
    connection: Connection, streams: Streams, ids: Mapping[StreamKey, StreamId], now_us: int, history_limit: int
) -> dict[int, StreamChange]:
    """Write rows within the caller's transaction; what changed, by stream id. Raises StreamsGone."""
    by_id = rows_by_id(streams, ids, history_limit)
    last_steps, blocked_steps = await lock_streams(connection, sorted(by_id))
    existing = await _existing(connection, by_id, last_steps)
    count = sum(len(rows) for _, rows in by_id.values())
    if count > _IN_THREAD_ROWS:
        plan = await asyncio.to_thread(_plan, by_id, existing, last_steps, now_us, history_limit)
    else:
        plan = _plan(by_id, existing, last_steps, now_us, history_limit)
    await _copy(connection, plan.fresh, now_us)
    await _update(connection, plan.updates)
    await _mark_blocks(connection, plan.changes, blocked_steps)
    await update_streams(connection, plan.changes)
    await update_catalogue(connection, plan.changes)
    return plan.changes


RowsById: TypeAlias = dict[int, tuple[StreamKey, dict[int, Pending]]]
_Existing: TypeAlias = dict[tuple[int, int], Sequence[Any]]


def rows_by_id(streams: Streams, ids: Mapping[StreamKey, StreamId], history_limit: int) -> RowsById:
    """Rows by stream id; two keys (a session's and its attempt's number) may mean the same stream."""
    by_id: RowsById = {}
    for key, rows in streams.items():
        stream_id = ids[key].stream_id
        present = by_id.get(stream_id)
        if present is None:
            by_id[stream_id] = (key, rows)
        else:
            merged = dict(present[1])
            for step, row in rows.items():
                both = step in merged
                merged[step] = merge(state_of(merged[step], key), state_of(row, key), history_limit) if both else row
            by_id[stream_id] = (key, merged)
    return by_id


_Steps: TypeAlias = dict[int, int | None]


async def lock_streams(connection: Connection, stream_ids: Sequence[int]) -> tuple[_Steps, _Steps]:
    """Each stream's last step, and the last of its steps that is in a block."""
    cursor = await connection.execute(
        "select id, last_step, blocked_step from lens_stream where id = any(%s) order by id for no key update",
        [list(stream_ids)],
    )
    found = await cursor.fetchall()
    if len(found) < len(stream_ids):
        raise StreamsGone
    return {int(row[0]): row[1] for row in found}, {int(row[0]): row[2] for row in found}


async def _mark_blocks(connection: Connection, changes: Mapping[int, StreamChange], blocked: _Steps) -> None:
    """Blocks in whose range a row was written are not to be read any more, until they are made anew."""
    touched = [
        (stream_id, step)
        for stream_id, change in changes.items()
        if (last := blocked[stream_id]) is not None
        for step in change.late_steps
        if step <= last
    ]
    if touched:
        await connection.execute(
            "update lens_block b set dirty = true from ("
            " select distinct k.stream_id, (select min(l.last_step) from lens_block l"
            "  where l.stream_id = k.stream_id and l.last_step >= k.step) as last_step"
            " from unnest(%s::bigint[], %s::bigint[]) k (stream_id, step)) t"
            " where b.stream_id = t.stream_id and b.last_step = t.last_step and not b.dirty",
            [[stream_id for stream_id, _ in touched], [step for _, step in touched]],
        )


async def _existing(connection: Connection, by_id: RowsById, last_steps: Mapping[int, int | None]) -> _Existing:
    """Those of the rows that the database has; only steps up to the stream's last can be there."""
    ids: list[int] = []
    steps: list[int] = []
    for stream_id, (_, rows) in by_id.items():
        last = last_steps[stream_id]
        if last is not None:
            perhaps = [step for step in rows if step <= last]
            ids += [stream_id] * len(perhaps)
            steps += perhaps
    if not ids:
        return {}
    cursor = await connection.execute(
        "select r.stream_id, r.row_step, r.sequence, r.rank, nullif(r.iteration, r.row_step), r.event_time_us,"
        " r.updated_us, r.metrics::text, r.tags::text, r.key_sequences::text, r.history::text"
        " from unnest(%s::bigint[], %s::bigint[]) k (stream_id, row_step)"
        " join lens_row r on r.stream_id = k.stream_id and r.row_step = k.row_step",
        [ids, steps],
    )
    return {(row[0], row[1]): row[2:] for row in await cursor.fetchall()}


def stored_row(row: Sequence[Any]) -> StoredRow:
    """A row of the database; its columns as `StoredRow` has them, documents as texts."""
    sequence, rank, iteration, event_time_us, updated_us, metrics, tags, key_sequences, history = row
    entries = None if history is None else _decode_history(history)
    return StoredRow(
        sequence,
        rank,
        iteration,
        event_time_us,
        updated_us,
        _restore_special_values(_decode_metrics(metrics)),
        None if tags is None else dict(_decode_tags(tags)),
        None if key_sequences is None else _decode_sequences(key_sequences),
        None
        if entries is None
        else [{**msgspec.structs.asdict(e), "values": _restore_special_values(e.values)} for e in entries],
    )


def _restore_special_values(values: Mapping[str, float | str]) -> dict[str, float]:
    """The special values, which are strings in JSON, as numbers again."""
    return {name: float(value) for name, value in values.items()}


def _plan(by_id: RowsById, existing: _Existing, last_steps: _Steps, now_us: int, history_limit: int) -> Plan:
    """Sort rows into new and changed ones and encode what changes."""
    plan = Plan([], [], {})
    for stream_id, (key, rows) in by_id.items():
        change = plan.changes[stream_id] = StreamChange()
        last = last_steps[stream_id]
        old = {step for step in rows if (stream_id, step) in existing} if existing else set()
        fresh = [(step, row) for step, row in rows.items() if step not in old]
        change.note_new_steps([step for step, _ in fresh], last)
        plan.fresh.append(Fresh(stream_id, key, fresh, change))
        for step in old:
            stored = stored_row(existing[stream_id, step])
            update = _merged(stream_id, step, stored, rows[step], key, now_us, history_limit, change)
            if update is not None:
                plan.updates.append(update)
                change.late_steps.append(step)
    return plan


def _merged(
    stream_id: int,
    row_step: int,
    stored: StoredRow,
    row: Pending,
    key: StreamKey,
    now_us: int,
    history_limit: int,
    change: StreamChange,
) -> Update | None:
    """Merge a write into an existing row; None when it changes nothing."""
    shared = key.shared_by_ranks
    merged = merge(from_stored(stored, shared_by_ranks=shared), state_of(row, key), history_limit)
    columns = to_stored(merged, shared_by_ranks=shared)
    encoded = encode_json(columns, row_step)
    if encoded == encode_json(stored, row_step):
        return None
    time_us = now_us if columns.event_time_us is None else columns.event_time_us
    change.changed_rows += 1
    change.saw(row_step, columns.iteration, time_us, columns.updated_us or time_us)
    before, after = (row_step if one.iteration is None else one.iteration for one in (stored, columns))
    gone = {n: v for n, v in stored.metrics.items() if before != after or repr(columns.metrics[n]) != repr(v)}
    new = {name: value for name, value in columns.metrics.items() if name in gone or name not in stored.metrics}
    change.note_metrics([new], [time_us], [after])
    change.points.subtract(list(gone))  # as many as before, with other values
    change.overwritten.append((before, gone))
    has_moved = columns.event_time_us is None or columns.event_time_us != stored.event_time_us
    change.unsure.update(columns.metrics if has_moved else gone)
    return Update(stream_id, row_step, encoded)


async def _copy(connection: Connection, fresh: Iterable[Fresh], now_us: int) -> None:
    """Store new rows, piece by piece: PostgreSQL works on one while the next is encoded."""
    pieces = list(_split_rows(fresh))
    if not pieces:
        return
    in_thread = len(pieces) > 1 or sum(len(part.rows) for part in pieces[0]) > _IN_THREAD_ROWS
    async with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        for piece in pieces:
            await copy.write(
                await asyncio.to_thread(_encode_piece, piece, now_us) if in_thread else _encode_piece(piece, now_us)
            )


def _split_rows(fresh: Iterable[Fresh]) -> Iterator[list[Fresh]]:
    """The same rows in lists of about as many as are encoded at one time."""
    piece: list[Fresh] = []
    count = 0
    for part in fresh:
        for first in range(0, len(part.rows), _PIECE_ROWS):
            rows = part.rows[first : first + _PIECE_ROWS]
            piece.append(part._replace(rows=rows))
            count += len(rows)
            if count >= _PIECE_ROWS:
                yield piece
                piece, count = [], 0
    if piece:
        yield piece


def _encode_piece(piece: Iterable[Fresh], now_us: int) -> bytes:
    return b"".join([copy_text(part.stream_id, part.key, part.rows, now_us, part.change) for part in piece])


async def _update(connection: Connection, updates: Sequence[Update]) -> None:
    if not updates:
        return
    rows = [update.row for update in updates]
    await connection.execute(
        "update lens_row r set sequence = u.sequence, rank = u.rank, iteration = u.iteration,"
        " event_time_us = u.event_time_us, updated_us = u.updated_us, metrics = u.metrics::jsonb,"
        " tags = u.tags::jsonb, key_sequences = u.key_sequences::jsonb, history = u.history::jsonb"
        " from unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[], %s::bigint[],"
        " %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[])"
        " u (stream_id, row_step, sequence, rank, iteration, event_time_us, updated_us,"
        " metrics, tags, key_sequences, history)"
        " where r.stream_id = u.stream_id and r.row_step = u.row_step",
        [
            [update.stream_id for update in updates],
            [update.row_step for update in updates],
            [row.sequence for row in rows],
            [row.rank for row in rows],
            [row.iteration for row in rows],
            [row.event_time_us for row in rows],
            [row.updated_us for row in rows],
            [row.metrics.decode() for row in rows],
            *([_decode_document(getattr(row, name)) for row in rows] for name in ("tags", "key_sequences", "history")),
        ],
    )


def _decode_document(document: bytes | None) -> str | None:
    return None if document is None else document.decode()
