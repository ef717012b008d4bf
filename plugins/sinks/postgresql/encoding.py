"""Rows as the text that COPY takes, and what they add to the stream's figures and its catalogue. Pure, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from lens_core import StepMetrics

from .grouping import Pending, StreamKey, state_of
from .rows import StoredRow, to_stored
from .text import jsonb, metrics_json, microseconds

COPY_COLUMNS = (
    "stream_id, row_step, received_us, sequence, event_time_us, updated_us, iteration, rank,"
    " workload_uid, data_source, metrics, tags, key_sequences, history"
)
_NULL = rb"\N"
_COPY_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_TARGET = "target_iteration"
_LOWEST = -(2**63)
_HIGHEST = 2**63 - 1


class EncodedRow(msgspec.Struct, frozen=True):
    """A merged row, its JSON columns made."""

    sequence: int
    rank: int | None
    iteration: int
    event_time_us: int | None
    updated_us: int | None
    metrics: bytes
    tags: bytes | None
    key_sequences: bytes | None
    history: bytes | None


@dataclass(slots=True)
class StreamChange:
    """What a batch changes about a stream; times are microseconds since the epoch.

    `late_steps` are rows written at or below the step that was the last until then.
    """

    new_rows: int = 0
    changed_rows: int = 0
    last_step: int = _LOWEST
    own_iterations: bool = False
    first_iteration: int = _HIGHEST
    last_iteration: int = _LOWEST
    target_iteration: int | None = None
    first_seen_us: int = _HIGHEST
    last_seen_us: int = _LOWEST
    points: Counter[str] = field(default_factory=Counter)
    layouts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    late_steps: list[int] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether everything was there already."""
        return not self.new_rows and not self.changed_rows

    def saw(self, row_step: int, iteration: int | None, first_us: int, last_us: int) -> None:
        """A row was added or changed."""
        step = row_step if iteration is None else iteration
        if step != row_step:
            self.own_iterations = True
        self.last_step = max(self.last_step, row_step)
        self.first_iteration = min(self.first_iteration, step)
        self.last_iteration = max(self.last_iteration, step)
        self.first_seen_us = min(self.first_seen_us, first_us)
        self.last_seen_us = max(self.last_seen_us, last_us)

    def settle(self) -> None:
        """Turn the layouts (rows of one and the same metrics) into points of each metric."""
        for names, count in self.layouts.items():
            for name in names:
                self.points[name] += count
        self.layouts.clear()


def encode_json(row: StoredRow, row_step: int) -> EncodedRow:
    """The JSON columns of a merged row."""
    return EncodedRow(
        row.sequence,
        row.rank,
        row_step if row.iteration is None else row.iteration,
        row.event_time_us,
        row.updated_us,
        metrics_json(row.metrics),
        jsonb(row.tags) if row.tags else None,
        jsonb(row.key_sequences) if row.key_sequences else None,
        jsonb(row.history) if row.history else None,
    )


def copy_lines(
    stream_id: int, key: StreamKey, rows: Iterable[tuple[int, Pending]], now_us: int, change: StreamChange
) -> list[bytes]:
    """New rows as lines for COPY_COLUMNS; `change` takes note of them."""
    shared = key.shared_by_ranks
    uid = key.subject.workload_uid
    owner = b"%b\t%b" % (_text(uid) if uid else _NULL, _text(key.data_source))
    lines = []
    for row_step, row in rows:
        if isinstance(row, StepMetrics) and row.values:
            lines.append(_line_of_one(stream_id, row, shared, now_us, owner, change))
        else:
            stored = to_stored(state_of(row, key), shared_by_ranks=shared)
            time_us = now_us if stored.event_time_us is None else stored.event_time_us
            change.saw(row_step, stored.iteration, time_us, stored.updated_us or time_us)
            note_layout(change, stored.metrics)
            lines.append(_line(stream_id, row_step, now_us, owner, encode_json(stored, row_step)))
    change.new_rows += len(lines)
    return lines


def _line_of_one(
    stream_id: int, row: StepMetrics, shared: bool, now_us: int, owner: bytes, change: StreamChange
) -> bytes:
    """The usual case, one write: no history, no sequences of single metrics."""
    event_us = microseconds(row.event_time)
    time_us = now_us if event_us is None else event_us
    rank = row.origin.rank if shared else None
    change.saw(row.row_step, row.iteration, time_us, time_us)
    note_layout(change, row.values)
    metrics = metrics_json(row.values)
    if b"\\" in metrics:
        metrics = metrics.replace(b"\\", b"\\\\")
    return b"%d\t%d\t%d\t%d\t%b\t\\N\t%b\t%b\t%b\t%b\t%b\t\\N\t\\N\n" % (
        stream_id,
        row.row_step,
        now_us,
        row.sequence,
        _number(event_us),
        b"%d" % (row.row_step if row.iteration is None else row.iteration),
        _number(None if rank is None or rank < 0 else rank),
        owner,
        metrics,
        _NULL if not row.tags else jsonb(row.tags).replace(b"\\", b"\\\\"),
    )


def _line(stream_id: int, row_step: int, now_us: int, owner: bytes, row: EncodedRow) -> bytes:
    numbers = (row.event_time_us, row.updated_us, row.iteration, row.rank)
    documents = (row.metrics, row.tags, row.key_sequences, row.history)
    head = (stream_id, row_step, now_us, row.sequence)
    fields = [b"%d" % number for number in head] + [_number(number) for number in numbers]
    fields.append(owner)
    fields += [_NULL if text is None else text.replace(b"\\", b"\\\\") for text in documents]
    return b"\t".join(fields) + b"\n"


def _text(text: str) -> bytes:
    """A text in COPY's text format."""
    return text.translate(_COPY_ESCAPES).encode()


def _number(number: int | None) -> bytes:
    return _NULL if number is None else b"%d" % number


def note_layout(change: StreamChange, values: Mapping[str, Any]) -> None:
    """A new row has these metrics."""
    change.layouts[tuple(values)] += 1
    target = values.get(_TARGET)
    if target is not None and abs(target) < 2**63:  # neither NaN nor infinite
        number = int(target)
        present = change.target_iteration
        change.target_iteration = number if present is None else max(present, number)
