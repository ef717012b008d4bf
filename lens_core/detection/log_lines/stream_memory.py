"""State of log streams between lines: per stream and per job, stored in the spool's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from ...model.records import Origin
from ...plugin_api.silence import stall_limit
from .schedule import Schedule

PREFIX = "log/"
# Streams without lines for so long are removed.
FORGET_SECONDS = 7 * 24 * 3600.0


class Attempt(msgspec.Struct):
    """One attempt of a job: its number, when it began, and whether it has steps yet."""

    number: int
    started: float
    has_steps: bool = False


class Job(msgspec.Struct, kw_only=True):
    """State of a job: its attempts, cadence, recent events and the frameworks that its lines showed.

    Times of lines are the lines' own; `seen_at` (of any line that says something) and `stepped_at` (of a step) are the
    receiver's clock. `usual_seconds` is the usual time from step
    to step. `events` maps what was reported to when; `saving` is the checkpoint that is being written.
    `is_evaluating`: an evaluation was announced after the newest step; `evaluation_seconds` is the longest pause so
    far in which one ran, by the receiver's clock. `has_epoch_zero`: its epochs count from 0, whatever their format is
    used to.
    """

    origin: Origin
    attempts: list[Attempt] = []
    last_step_time: float | None = None
    last_iteration: int | None = None
    seen_at: float = 0.0
    stepped_at: float = 0.0
    usual_seconds: float | None = None
    intervals: int = 0
    is_running: bool = False
    is_stalled: bool = False
    is_not_finite: bool = False
    is_evaluating: bool = False
    evaluation_seconds: float = 0.0
    events: dict[str, float] = {}
    frameworks: dict[str, float] = {}
    saving: tuple[int | None, float, str] | None = None
    configured: dict[str, float] = {}
    has_epoch_zero: bool = False


class Stream(msgspec.Struct, kw_only=True):
    """State of one rank's lines of one container.

    `last` are the steps by format; `latest` the time of the newest step's line; `held` values wait for the next step;
    `table` and `columns` the header above; `bar` the progress bar that was seen last; `ordinal` counts unnumbered rows,
    the newest of `counted_epoch`, and `rows_per_epoch` of them are an epoch; `row_interval`
    are the steps from row to row where only epochs are printed, over `rows_behind` rows since `first_row_step`;
    `bar_total` is the total of the bar that counts the rows; `steps_per_epoch` what rows with a bar say of it.
    `announced` is the step that a line without numbers announced, with its target and the names that it has by now;
    `announced_by_row`: a row without a loss did, and the next row with one takes it back.
    `cells` are the keys of a table of keys and values, `cell_step` its step once it is known. `epoch_counted`,
    `step_counted` and `steps_before_epoch` count on where steps begin again with each epoch and no total is printed.
    `bar_length` is the total of bars that begin anew with each epoch, `step_beside` how far a shorter bar beside them
    is. `counted` are the newest counter and total of the general reader; `counts_epochs`: they are an epoch and the
    step in it. `has_loss`: rows of a detector's format have one. `evaluated` are results of an evaluation before the
    first step, `evaluated_step` is the step that they name.
    `epoch` was announced last, for steps that count within it and do not name it. `repeats`: the next step is one from
    before.
    `partial` are the beginnings of lines, by stdout and stderr, whose ends have not come.
    `positions` are how far what is read by position (a file) has been taken.
    """

    last: dict[str, int] = {}
    latest: float | None = None
    attempt: int = 0
    held: dict[str, float] = {}
    table: str = ""
    columns: list[str] = []
    bar: tuple[int, int | None] | None = None
    bar_total: int | None = None
    steps_per_epoch: float | None = None
    announced: int | None = None
    announced_target: float | None = None
    announced_names: list[str] = []
    announced_by_row: bool = False
    cells: list[str] = []
    cell_step: int | None = None
    epoch_counted: float | None = None
    step_counted: int = 0
    steps_before_epoch: int = 0
    bar_length: int | None = None
    step_beside: int | None = None
    counted: tuple[int, float] | None = None
    counts_epochs: bool = False
    has_loss: bool = False
    evaluated: dict[str, float] = {}
    evaluated_step: int | None = None
    epoch: float | None = None
    last_row: int | None = None
    repeats: bool = False
    ordinal: int = 0
    counted_epoch: float | None = None
    rows_per_epoch: float | None = None
    row_interval: int | None = None
    first_row_step: float = 0.0
    rows_behind: int = 0
    sequence: int = 0
    partial: dict[str, str] = {}
    positions: dict[str, int] = {}
    seen_at: float = 0.0


def is_silent(job: Job, now: float) -> bool:
    """Whether a running job's next step is overdue, and nobody has been told."""
    limit = silence_limit(job)
    return limit is not None and now - job.stepped_at > limit


def silence_limit(job: Job) -> float | None:
    """The seconds after which the silence of a job is a stall; None for one of which no step is expected."""
    if not job.is_running or job.is_stalled or job.usual_seconds is None or job.intervals < 2:
        return None
    return stall_limit(job.usual_seconds, job.evaluation_seconds, is_pausing=job.is_evaluating)


Kept = TypeVar("Kept", Job, Stream)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
    f"{PREFIX}job/": msgspec.msgpack.Decoder(Job),
    f"{PREFIX}stream/": msgspec.msgpack.Decoder(Stream),
}


class Memory:
    """All jobs and streams; knows which changed since the last commit, and can take the changes back."""

    def __init__(self) -> None:
        self._kept: dict[str, Job | Stream] = {}
        self._stored: dict[str, bytes] = {}
        self._changed: dict[str, bytes | None] = {}
        self._before: dict[str, bytes | None] = {}
        self._silences = Schedule()
        self._ages = Schedule()

    def begin(self) -> None:
        """Mark the changes so far as stored: `rollback` goes back no further than here."""
        self._changed, self._before = {}, {}

    def load_entries(self, state: Mapping[str, bytes]) -> int:
        """Take up stored state; what cannot be read is left out. Returns how many entries that were."""
        unreadable = 0
        for key, value in state.items():
            decoder = _decoder_of(key)
            if decoder is None:
                continue
            try:
                self._kept[key] = decoder.decode(value)
            except msgspec.DecodeError:
                unreadable += 1
                continue
            self._stored[key] = value
        return unreadable

    def job(self, name: str, origin: Origin) -> Job:
        """A job that is about to change, made if it is new: of the origin it keeps what identifies a job."""
        key = f"{PREFIX}job/{name}"
        if key not in self._changed:
            self._changed[key] = self._stored.get(key)
        found = self._kept.get(key)
        if not isinstance(found, Job):
            found = self._kept[key] = Job(origin=_bare(origin))
            self._schedule(key)
        return found

    def known_job(self, name: str) -> Job | None:
        """A job that lines have told of; None if there is none."""
        found = self._kept.get(f"{PREFIX}job/{name}")
        return found if isinstance(found, Job) else None

    def stream(self, name: str) -> Stream:
        """A stream, made if it is new; call `touch` when it changes."""
        key = f"{PREFIX}stream/{name}"
        found = self._kept.get(key)
        if not isinstance(found, Stream):
            found = self._kept[key] = Stream()
            self._schedule(key)
        return found

    def touch_job(self, name: str) -> None:
        """Say that a job is about to change."""
        key = f"{PREFIX}job/{name}"
        self._changed.setdefault(key, self._stored.get(key))

    def touch_stream(self, name: str) -> None:
        """Say that a stream is about to change."""
        key = f"{PREFIX}stream/{name}"
        self._changed.setdefault(key, self._stored.get(key))

    def jobs(self) -> Iterator[tuple[str, Job]]:
        """All jobs with their names."""
        for key, kept in list(self._kept.items()):
            if isinstance(kept, Job):
                yield key[len(f"{PREFIX}job/") :], kept

    def pop_overdue(self, now: float) -> list[tuple[str, Job]]:
        """The jobs whose next step may be overdue, with their names; each is to be looked at again later."""
        found: list[tuple[str, Job]] = []
        for key in self._silences.pop_due(now):
            kept = self._kept.get(key)
            if isinstance(kept, Job):
                found.append((key[len(f"{PREFIX}job/") :], kept))
                self._schedule(key)
        return found

    def forget_unseen(self, now: float) -> None:
        """Drop what nobody has heard of for a long time."""
        for key in self._ages.pop_due(now):
            kept = self._kept.get(key)
            if kept is not None and kept.seen_at < now - FORGET_SECONDS:
                del self._kept[key]
                self._changed.setdefault(key, self._stored.get(key))
            elif kept is not None:
                self._schedule(key)

    def schedule_all(self) -> None:
        """Look at everything when it is due."""
        self._silences.forget_names()
        self._ages.forget_names()
        for key in self._kept:
            self._schedule(key)

    def _schedule(self, key: str) -> None:
        """Look at an entry when it may be silent for too long, and when it may be forgotten."""
        kept = self._kept[key]
        self._ages.schedule_earliest(key, kept.seen_at + FORGET_SECONDS)
        if isinstance(kept, Job) and (limit := silence_limit(kept)) is not None:
            self._silences.schedule_earliest(key, kept.stepped_at + limit)

    def changes(self) -> dict[str, bytes | None]:
        """The new state of all that changed, to be stored; kept as stored unless `rollback` follows."""
        changes: dict[str, bytes | None] = {}
        for key in self._changed:
            kept = self._kept.get(key)
            if kept is None:
                if self._stored.pop(key, None) is not None:
                    changes[key] = None
                continue
            self._schedule(key)
            encoded = _encoder.encode(kept)
            if encoded != self._stored.get(key):
                changes[key] = self._stored[key] = encoded
        self._before, self._changed = self._changed, {}
        return changes

    def rollback(self) -> None:
        """Put everything back as it was before the last `changes`, or since."""
        for key, value in {**self._changed, **self._before}.items():
            decoder = _decoder_of(key)
            if value is None or decoder is None:
                self._kept.pop(key, None)
                self._stored.pop(key, None)
            else:
                self._kept[key] = decoder.decode(value)
                self._stored[key] = value
                self._schedule(key)
        self._changed, self._before = {}, {}


def _bare(origin: Origin) -> Origin:
    """The part of an origin that identifies a job."""
    return Origin(
        cluster=origin.cluster,
        workload_uid=origin.workload_uid,
        pod_name=origin.pod_name,
        pod_uid=origin.pod_uid,
        namespace=origin.namespace,
        node=origin.node,
    )


def _decoder_of(key: str) -> msgspec.msgpack.Decoder[Any] | None:
    return next((decoder for prefix, decoder in _decoders.items() if key.startswith(prefix)), None)
