"""Rows as the text that COPY takes, and what they add to the stream's figures and its catalogue. Pure, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import msgspec

from lens_core import StepMetrics

from .grouping import Pending, StreamKey, state_of
from .layouts import Layout
from .rows import StoredRow, to_stored
from .text import jsonb, metrics_json, metrics_lines, microseconds
from .value_summaries import ValueSummary, summarize_rows

COPY_COLUMNS = (
    "stream_id, row_step, received_us, sequence, event_time_us, updated_us, iteration, rank,"
    " workload_uid, data_source, metrics, tags, key_sequences, history"
)
_NO_TEXT = r"\N"
_NULL = _NO_TEXT.encode()
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
    """Changes of a stream by a batch; times are microseconds since the epoch.

    `late_steps` are rows written at or below the step that was the last until then; `first_new_step` is the lowest
    beyond it. `values` summarizes those of the new points; of metrics that are `unsure` others were overwritten.
    `noted` are the new points themselves (values, times and iterations of rows), `overwritten` values by iteration.
    """

    new_rows: int = 0
    changed_rows: int = 0
    first_new_step: int = _HIGHEST
    last_step: int = _LOWEST
    own_iterations: bool = False
    first_iteration: int = _HIGHEST
    last_iteration: int = _LOWEST
    target_iteration: int | None = None
    first_seen_us: int = _HIGHEST
    last_seen_us: int = _LOWEST
    points: Counter[str] = field(default_factory=Counter)
    values: dict[str, ValueSummary] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    noted: list[tuple[Sequence[Mapping[str, float]], Sequence[int], Sequence[int]]] = field(default_factory=list)
    overwritten: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)
    late_steps: list[int] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether everything was there already."""
        return not self.new_rows and not self.changed_rows

    def note_new_steps(self, steps: Sequence[int], last: int | None) -> None:
        """New rows have these steps; `last` was the highest before."""
        beyond = steps if last is None else [step for step in steps if step > last]
        self.first_new_step = min(self.first_new_step, *beyond) if beyond else self.first_new_step
        if last is not None:
            self.late_steps += [step for step in steps if step <= last]

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

    def saw_all(self, steps: Sequence[int], iterations: Sequence[int], times_us: Sequence[int]) -> None:
        """Rows (at least one) were added."""
        self.own_iterations = self.own_iterations or steps != iterations
        self.last_step = max(self.last_step, *steps)
        self.first_iteration = min(self.first_iteration, *iterations)
        self.last_iteration = max(self.last_iteration, *iterations)
        self.first_seen_us = min(self.first_seen_us, *times_us)
        self.last_seen_us = max(self.last_seen_us, *times_us)

    def note_metrics(
        self,
        rows: Sequence[Mapping[str, float]],
        times_us: Sequence[int],
        iterations: Sequence[int],
        layouts: Sequence[Layout] | None = None,
    ) -> None:
        """New rows have these metrics; `layouts` are theirs, where they are known already."""
        self.noted.append((rows, times_us, iterations))
        points = summarize_rows(self.values, rows, times_us, iterations, layouts)
        self.points.update(points)
        if _TARGET in points:
            known = (row[_TARGET] for row in rows if _TARGET in row)
            self._saw_targets([int(target) for target in known if abs(target) < 2**63])  # NaN and infinities are none

    def _saw_targets(self, targets: Sequence[int]) -> None:
        if targets:
            highest = max(targets)
            present = self.target_iteration
            self.target_iteration = highest if present is None else max(present, highest)


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


def copy_text(
    stream_id: int, key: StreamKey, rows: Iterable[tuple[int, Pending]], now_us: int, change: StreamChange
) -> bytes:
    """New rows as lines for COPY_COLUMNS; `change` takes note of them."""
    shared = key.shared_by_ranks
    uid = key.subject.workload_uid
    owner = b"%b\t%b" % (_escape_text(uid) if uid else _NULL, _escape_text(key.data_source))
    written_once: list[StepMetrics] = []
    lines = []
    for row_step, row in rows:
        if isinstance(row, StepMetrics) and row.values:
            written_once.append(row)
        else:
            stored = to_stored(state_of(row, key), shared_by_ranks=shared)
            time_us = now_us if stored.event_time_us is None else stored.event_time_us
            change.saw(row_step, stored.iteration, time_us, stored.updated_us or time_us)
            iteration = row_step if stored.iteration is None else stored.iteration
            change.note_metrics([stored.metrics], [time_us], [iteration])
            lines.append(_encode_line(stream_id, row_step, now_us, owner, encode_json(stored, row_step)))
    change.new_rows += len(lines) + len(written_once)
    if written_once:
        lines.append(_usual_lines(stream_id, written_once, shared, now_us, owner.decode(), change))
    return b"".join(lines)


def _usual_lines(
    stream_id: int, rows: Sequence[StepMetrics], shared: bool, now_us: int, owner: str, change: StreamChange
) -> bytes:
    """The usual case, one write for each row: no history, no sequences of single metrics.

    Column by column, because what is done to each row by itself is most of the cost of storing it.
    """
    values = [row.values for row in rows]
    steps = [row.row_step for row in rows]
    iterations = [row.row_step if row.iteration is None else row.iteration for row in rows]
    times = [microseconds(row.event_time) for row in rows]
    known_times = [now_us if time is None else time for time in times]
    change.saw_all(steps, iterations, known_times)
    change.note_metrics(values, known_times, iterations)
    ranks: Iterable[str] = map(_shown_rank, rows) if shared else repeat(_NO_TEXT)
    columns = zip(steps, rows, times, iterations, ranks, metrics_lines(values), strict=False)
    return "".join(
        [
            f"{stream_id}\t{step}\t{now_us}\t{row.sequence}\t{_NO_TEXT if time is None else time}\t{_NO_TEXT}"
            f"\t{iteration}\t{rank}\t{owner}\t{metrics}\t{_shown_tags(row) if row.tags else _NO_TEXT}"
            f"\t{_NO_TEXT}\t{_NO_TEXT}\n"
            for step, row, time, iteration, rank, metrics in columns
        ]
    ).encode()


def _shown_rank(row: StepMetrics) -> str:
    rank = row.origin.rank
    return _NO_TEXT if rank is None or rank < 0 else str(rank)


def _shown_tags(row: StepMetrics) -> str:
    return jsonb(row.tags).replace(b"\\", b"\\\\").decode()


def _encode_line(stream_id: int, row_step: int, now_us: int, owner: bytes, row: EncodedRow) -> bytes:
    numbers = (row.event_time_us, row.updated_us, row.iteration, row.rank)
    documents = (row.metrics, row.tags, row.key_sequences, row.history)
    head = (stream_id, row_step, now_us, row.sequence)
    fields = [b"%d" % number for number in head] + [_encode_integer(number) for number in numbers]
    fields.append(owner)
    fields += [_NULL if text is None else text.replace(b"\\", b"\\\\") for text in documents]
    return b"\t".join(fields) + b"\n"


def _escape_text(text: str) -> bytes:
    """A text in COPY's text format."""
    return text.translate(_COPY_ESCAPES).encode()


def _encode_integer(number: int | None) -> bytes:
    return _NULL if number is None else b"%d" % number
