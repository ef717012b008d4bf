"""The last lines of each log stream: in memory while they come, as a record once something is wrong with the job."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

import msgspec

from ...base.log_redaction import redact_lines
from ...model.records import LOG_TAIL, Diagnosis, LogLine, Origin

STREAM_BYTES = 16 * 1024
TOTAL_BYTES = 16 * 1024 * 1024
MOST_LINE_CHARACTERS = 1000
# The streams of a job that are kept with its failure: a job of 10,000 ranks fails with all of them.
MOST_KEPT_STREAMS = 8
# A traceback, and the other ranks, still print when the first line has told of a failure.
KEEP_AFTER_SECONDS = 2.0
KEEP_AGAIN_SECONDS = 60.0
MOST_TROUBLES = 1000
# The memory that a line or a stream takes beside its text.
_LINE_BYTES = 120
_STREAM_OVERHEAD_BYTES = 600

_Key = tuple[str, ...]


class TailLine(msgspec.Struct, frozen=True, array_like=True):
    """A line and its time in ms; None where the line came without one."""

    at: int | None
    text: str


class LogTail(msgspec.Struct, frozen=True, kw_only=True):
    """The last lines of one stream, oldest first, without secrets; `has_cause`: it told of the failure itself."""

    rank: int | None
    node: str
    pod_name: str
    container: str
    stream: str
    has_cause: bool
    lines: Sequence[TailLine]

    @property
    def place(self) -> _Key:
        """The identity of the stream within its job."""
        return (self.pod_name, self.container, self.stream, "" if self.rank is None else str(self.rank))


class _Stream:
    """The lines of one stream within its bytes."""

    __slots__ = ("bytes", "jobs", "lines", "origin", "seen_at", "stream")

    def __init__(self, origin: Origin, stream: str, jobs: Sequence[str]) -> None:
        self.origin = origin
        self.stream = stream
        self.jobs = jobs
        self.lines: deque[tuple[float | None, str]] = deque()
        self.bytes = _STREAM_OVERHEAD_BYTES
        self.seen_at = 0.0

    def copy_stream(self) -> _Stream:
        """The stream as it is now, whatever comes later."""
        found = _Stream(self.origin, self.stream, self.jobs)
        found.lines = self.lines.copy()
        return found

    def tail(self, has_cause: bool) -> LogTail:
        """The lines as they may be shown."""
        texts = redact_lines(text for _, text in self.lines)
        lines = [
            TailLine(None if at is None else round(at * 1000), text)
            for (at, _), text in zip(self.lines, texts, strict=True)
        ]
        origin = self.origin
        return LogTail(
            rank=origin.rank,
            node=origin.node,
            pod_name=origin.pod_name,
            container=origin.container,
            stream=self.stream,
            has_cause=has_cause,
            lines=lines,
        )


class _Trouble(msgspec.Struct):
    """A job with which something is wrong: when that was told, by which streams, and when it was last kept."""

    told_at: float
    origin: Origin
    names: frozenset[str]
    by: set[_Key]
    kept_at: float | None = None
    is_due: bool = True


class LogTails:
    """Keeps the last lines of all streams within TOTAL_BYTES; the streams that were silent longest go first.

    Detectors write from one thread or another while the query API reads, hence the lock.
    """

    def __init__(self, stream_bytes: int = STREAM_BYTES, total_bytes: int = TOTAL_BYTES) -> None:
        self._stream_bytes = stream_bytes
        self._total_bytes = total_bytes
        self._streams: OrderedDict[_Key, _Stream] = OrderedDict()
        self._bytes = 0
        self._troubles: OrderedDict[str, _Trouble] = OrderedDict()
        self._lock = threading.Lock()
        self._appended: list[tuple[_Key, _Stream, int]] = []
        self._drained: list[tuple[_Trouble, float | None]] = []

    @property
    def bytes(self) -> int:
        """The memory that the lines take, about."""
        return self._bytes

    def append_lines(
        self,
        lines: Sequence[LogLine],
        identity_of: Callable[[Origin], _Key],
        jobs_of: Callable[[Origin], Sequence[str]],
        now: float,
    ) -> None:
        """Keep the last of these lines, which come in the order of their streams."""
        newest: dict[tuple[int, str], tuple[Origin, list[LogLine], int]] = {}
        is_of_one_stream = _are_of_one_stream(lines)
        for line in reversed(lines):
            place = (id(line.origin), line.stream)
            found = newest.get(place)
            if found is None:
                newest[place] = (line.origin, [line], _size_of(line))
            elif found[2] < self._stream_bytes:
                found[1].append(line)
                newest[place] = (found[0], found[1], found[2] + _size_of(line))
            elif is_of_one_stream:
                break
        with self._lock:
            for (_, name), (origin, kept, _) in reversed(newest.items()):
                self._append_to_stream((*identity_of(origin), name), origin, name, jobs_of, kept[::-1], now)

    def _append_to_stream(
        self,
        key: _Key,
        origin: Origin,
        name: str,
        jobs_of: Callable[[Origin], Sequence[str]],
        lines: Sequence[LogLine],
        now: float,
    ) -> None:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream(origin, name, jobs_of(origin))
            self._bytes += stream.bytes
        self._streams.move_to_end(key)
        stream.seen_at = now
        before = stream.bytes
        for line in lines:
            stream.lines.append((line.event_time, line.text[:MOST_LINE_CHARACTERS]))
            stream.bytes += _size_of(line)
        while stream.bytes > self._stream_bytes and len(stream.lines) > 1:
            stream.bytes -= _LINE_BYTES + len(stream.lines.popleft()[1])
        self._appended.append((key, stream, len(lines)))
        self._bytes += stream.bytes - before
        while self._bytes > self._total_bytes and len(self._streams) > 1:
            self._bytes -= self._streams.popitem(last=False)[1].bytes

    def begin(self) -> None:
        """Begin a submission: `rollback` takes back only what comes from now on."""
        self._appended.clear()
        self._drained.clear()

    def rollback(self) -> None:
        """Take back all since `begin`: it was not stored and will come again."""
        with self._lock:
            for key, stream, count in reversed(self._appended):
                if self._streams.get(key) is not stream:
                    continue  # others took its place, and its bytes are no longer counted
                for _ in range(min(count, len(stream.lines))):
                    size = _LINE_BYTES + len(stream.lines.pop()[1])
                    stream.bytes -= size
                    self._bytes -= size
                if not stream.lines:
                    self._bytes -= self._streams.pop(key).bytes
        for trouble, kept_at in self._drained:
            trouble.kept_at, trouble.is_due = kept_at, True
        self.begin()

    def note_trouble(self, names: Sequence[str], origin: Origin, by: _Key | None, now: float, said: str = "") -> None:
        """Something is wrong with a job that has these names: its last lines are to be stored soon.

        `by` is the identity whose line told it, `said` a part of that line.
        """
        with self._lock:
            trouble = self._troubles.get(names[0])
            if trouble is None:
                trouble = self._troubles[names[0]] = _Trouble(now, origin, frozenset(names), set())
                if len(self._troubles) > MOST_TROUBLES:
                    self._troubles.popitem(last=False)
            elif not trouble.is_due:
                trouble.told_at, trouble.is_due, trouble.by = now, True, set()
            if by is not None and len(trouble.by) < 2 * MOST_KEPT_STREAMS:
                trouble.by |= self._streams_that_told(by, said)

    def _streams_that_told(self, by: _Key, said: str) -> set[_Key]:
        """The streams of an identity in which the line stands: of those with new lines the ones that hold what it said.

        The rank may be known from the line alone, so that the stream has none.
        """
        identities = (by, (*by[:-1], ""))
        news = [(key, stream, count) for key, stream, count in self._appended if key[:-1] in identities]
        telling = {key for key, stream, count in news if said and _holds(stream, count, said)}
        return telling or {key for key, _, _ in news} or {key for key in self._streams if key[:-1] in identities}

    def drain_due(self, now: float) -> list[Diagnosis]:
        """The last lines of the jobs with which something is wrong, as records; each job at most once a minute."""
        found: list[Diagnosis] = []
        for trouble in list(self._troubles.values()):
            waits_until = trouble.told_at + KEEP_AFTER_SECONDS
            if trouble.kept_at is not None:
                waits_until = max(waits_until, trouble.kept_at + KEEP_AGAIN_SECONDS)
            if trouble.is_due and now >= waits_until:
                found += self._records_of(trouble, now)
                self._drained.append((trouble, trouble.kept_at))
                trouble.kept_at, trouble.is_due = now, False
        return found

    def _records_of(self, trouble: _Trouble, now: float) -> list[Diagnosis]:
        with self._lock:
            mine = [(key, stream) for key, stream in self._streams.items() if not trouble.names.isdisjoint(stream.jobs)]
            mine.sort(key=lambda one: (one[0] in trouble.by, one[1].seen_at), reverse=True)
            chosen = [(stream.copy_stream(), key in trouble.by) for key, stream in mine[:MOST_KEPT_STREAMS]]
        tails = [stream.tail(has_cause) for stream, has_cause in chosen]
        return [
            Diagnosis(
                origin=trouble.origin,
                data_type=LOG_TAIL,
                data_content=msgspec.json.encode(tail).decode(),
                timestamp=now,
            )
            for tail in tails
        ]

    def tails_of(self, is_wanted: Callable[[Origin], bool], limit: int) -> tuple[list[LogTail], int]:
        """The newest tails of the wanted origins, at most so many, and how many there are.

        Secrets are looked for outside the lock: that takes milliseconds for each stream.
        """
        with self._lock:
            mine = [(key, stream) for key, stream in reversed(self._streams.items()) if is_wanted(stream.origin)]
            tellers = {key for trouble in self._troubles.values() for key in trouble.by}
            mine.sort(key=lambda one: one[0] in tellers, reverse=True)
            chosen = [(stream.copy_stream(), key in tellers) for key, stream in mine[:limit]]
        return [stream.tail(has_cause) for stream, has_cause in chosen], len(mine)

    def forget_streams(self, is_over: Callable[[Origin], bool]) -> None:
        """Remove the lines of these origins: they were deleted."""
        with self._lock:
            for key in [key for key, stream in self._streams.items() if is_over(stream.origin)]:
                self._bytes -= self._streams.pop(key).bytes
            for job in [job for job, trouble in self._troubles.items() if is_over(trouble.origin)]:
                del self._troubles[job]


def _holds(stream: _Stream, count: int, said: str) -> bool:
    """Whether a text stands in one of the newest lines of a stream."""
    return any(said in text for _, text in itertools.islice(reversed(stream.lines), count))


def _are_of_one_stream(lines: Sequence[LogLine]) -> bool:
    """Whether all lines share one origin and one stream, which is what most submissions are."""
    if not lines:
        return True
    origin, stream = lines[0].origin, lines[0].stream
    return all(line.origin is origin and line.stream == stream for line in lines)


def _size_of(line: LogLine) -> int:
    return _LINE_BYTES + min(len(line.text), MOST_LINE_CHARACTERS)


def decode_tail(text: str) -> LogTail | None:
    """A tail out of a stored record; None for what is none."""
    try:
        return msgspec.json.decode(text, type=LogTail)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
