"""Looking at records as they pass: what `lens tap` and the page's live view listen to.

A pipeline publishes what its spool has taken. Without a listener that costs one comparison; a listener that is too slow
loses records, counted, and never holds a pipeline up.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

import msgspec

from ..base.errors import TooManyRequests
from ..delivery.sending.policy import is_set_within
from ..model.records import Origin, Record, kind_of

MAX_LISTENERS = 200
# Of one listener, between two looks.
MAX_KEPT_RECORDS = 2000
MAX_CHANGED_NAMES = 500


# Publishing happens in the event loop: that a submission is large and many listen may not hold it.
_MOST_LOOKED_AT = 10_000
_LEAST_LOOKED_AT = 50


class RecordSelection(msgspec.Struct, frozen=True, array_like=True):
    """The records that a live view shows: names with * and ?; no kinds are all kinds."""

    pipeline: str = "*"
    workload: str = "*"
    kinds: Sequence[str] = ()

    def is_wanted(self, pipeline: str, record: Record) -> bool:
        """Whether a record of a pipeline is shown."""
        if self.kinds and kind_of(record) not in self.kinds:
            return False
        if self.pipeline != "*" and not fnmatchcase(pipeline, self.pipeline):
            return False
        return self.workload == "*" or _is_of(record, self.workload)


def _is_of(record: Record, workload: str) -> bool:
    origin = record.origin
    return any(fnmatchcase(name, workload) for name in (subject_name(origin), origin.pod_name) if name)


class Listener(ABC):
    """One that listens; `wait` returns when there is something, when the time is up or when the tap closes."""

    def __init__(self) -> None:
        self._something = asyncio.Event()
        self.closed = False
        self.silent: Sequence[str] = ()

    def note_silent(self, daemons: Sequence[str]) -> None:
        """Note the other daemons of the cluster whose records may be missing."""
        if list(daemons) != list(self.silent):
            self.silent = daemons
            self._something.set()

    @abstractmethod
    def receive_records(self, pipeline: str, records: Sequence[Record]) -> None:
        """Called for every submission that a pipeline has taken."""

    def pass_over(self, count: int) -> None:
        """Count records that were not looked at because too many came at once."""

    def close(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self._something.set()

    async def wait(self, seconds: float) -> None:
        """Wait for something, at most so long."""
        await is_set_within(seconds, self._something)

    def _clear_signal(self) -> None:
        if not self.closed:
            self._something.clear()


class RecordListener(Listener):
    """Keeps the newest records that are wanted, with their pipeline; `dropped` counts those that it had to let go."""

    def __init__(self, selection: RecordSelection, max_records: int) -> None:
        super().__init__()
        self.selection = selection
        self._kept: deque[tuple[str, Record]] = deque(maxlen=max_records)
        self.dropped = 0

    def receive_records(self, pipeline: str, records: Sequence[Record]) -> None:
        """Keep what is wanted."""
        is_wanted = self.selection.is_wanted
        for record in records:
            if is_wanted(pipeline, record):
                self.dropped += len(self._kept) == self._kept.maxlen
                self._kept.append((pipeline, record))
                self._something.set()

    def pass_over(self, count: int) -> None:
        """Count them as dropped; whether they were wanted is not known."""
        self.dropped += count

    def drain_records(self) -> list[tuple[str, Record]]:
        """Return the records that came since the last call."""
        taken = list(self._kept)
        self._kept.clear()
        self._clear_signal()
        return taken


class ChangeListener(Listener):
    """Keeps whose records came: workloads, or pods of which no workload is known."""

    def __init__(self, max_names: int) -> None:
        super().__init__()
        self._max_names = max_names
        self._names: dict[str, None] = {}

    def receive_records(self, pipeline: str, records: Sequence[Record]) -> None:
        """Note the origins; the records of one request mostly share one."""
        last: Origin | None = None
        for record in records:
            if record.origin is not last:
                last = record.origin
                if last.is_known and len(self._names) < self._max_names:
                    self._names[subject_name(last)] = None
        if self._names:
            self._something.set()

    def receive_subjects(self, names: Sequence[str]) -> None:
        """Note subjects by name."""
        for name in names[: max(0, self._max_names - len(self._names))]:
            self._names[name] = None
        if self._names:
            self._something.set()

    def drain_subjects(self) -> list[str]:
        """Return the subjects whose records came since the last call."""
        taken = list(self._names)
        self._names.clear()
        self._clear_signal()
        return taken


L = TypeVar("L", bound=Listener)


class Relay(Protocol):
    """Brings what passes through other daemons to listeners."""

    def begin_following(self, listener: Listener) -> None:
        """Bring it to this listener, too."""
        ...

    def end_following(self, listener: Listener) -> None:
        """The listener has gone."""
        ...


class Tap:
    """Passes records from pipelines to listeners; all of it in the daemon's event loop."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._closed = False
        self.relay: Relay | None = None

    def publish(self, pipeline: str, records: Sequence[Record]) -> None:
        """Let everybody hear what a pipeline has taken: together they look at so many records, however many come."""
        if not self._listeners:
            return
        one_of_each = list({id(record.origin): record for record in records}.values())
        most = max(_LEAST_LOOKED_AT, _MOST_LOOKED_AT // len(self._listeners))
        for listener in self._listeners:
            if isinstance(listener, ChangeListener):
                listener.receive_records(pipeline, one_of_each)
            else:
                listener.pass_over(max(0, len(records) - most))
                listener.receive_records(pipeline, records[-most:])

    def ensure_room(self) -> None:
        """Raise TooManyRequests when no further listener is taken."""
        if len(self._listeners) >= MAX_LISTENERS:
            raise TooManyRequests(f"{MAX_LISTENERS} live views are open already; close some", retry_after_seconds=10)

    @contextmanager
    def listening(self, listener: L) -> Iterator[L]:
        """The listener hears everything while this context lasts, in a cluster also from the other daemons."""
        with self.listening_here(listener):
            relay = self.relay
            if relay is not None and not listener.closed:
                relay.begin_following(listener)
            try:
                yield listener
            finally:
                if relay is not None:
                    relay.end_following(listener)

    @contextmanager
    def listening_here(self, listener: L) -> Iterator[L]:
        """The listener hears what passes through this daemon while this context lasts."""
        if self._closed:
            listener.close()
        self._listeners.append(listener)
        try:
            yield listener
        finally:
            self._listeners.remove(listener)

    def close_listeners(self) -> None:
        """The daemon stops: every listener ends, so that no connection holds it up."""
        self._closed = True
        for listener in self._listeners:
            listener.close()


def subject_name(origin: Origin) -> str:
    """The name under which the data of an origin is asked for."""
    if origin.workload_uid or origin.pod_uid:
        return origin.workload_uid or origin.pod_uid
    return f"{origin.namespace}/{origin.pod_name}" if origin.namespace else origin.pod_name
