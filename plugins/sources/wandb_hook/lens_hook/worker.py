"""The one thread: takes rows from the buffer, encodes them, keeps them, sends them."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import evidence, local_file, say, settings
from .buffer import Summary
from .client import REQUEST_SECONDS, Client
from .disk_store import DiskStore
from .echo import Echo
from .sender import Sender
from .session import Session
from .stale_spools import StaleSpools
from .store import MemoryStore, Store
from .wire import Encoder, Line, Merged, encode_origin, merge

if TYPE_CHECKING:
    from typing import Protocol

    from .buffer import Buffer
    from .embedded import EmbeddedDaemon
    from .session import Session
    from .settings import Settings

    class Hook(Protocol):
        """The interface of the process's hook for the worker."""

        settings: Settings
        buffer: Buffer
        sessions: list[Session]
        system_values: dict[str, float]

        def forget_ended(self) -> None:
            """Let go of sessions that are over."""


# Encoded at a stretch: 256 rows of five metrics, about 0.8 ms of the interpreter's lock. Smaller pieces would cost more
# than they spare: to get the lock back from a training loop that lets go of it often but briefly takes several
# wake-ups, 80 µs in all.
_PIECE_METRICS = 2816
_ROW_METRICS = 6  # the size of a row besides its metrics, in metrics
_REST_SECONDS = 0.0005
_APPEND_ROWS = 512
_HELP_WAIT_SECONDS = 0.2
_MAX_EVENTS = 1000

_Event = tuple[Session, str, float, dict[str, Any]]


class Worker:
    """Moves rows from the buffer to the receiver; `run` is the thread, the rest also works without one."""

    def __init__(self, runtime: Hook) -> None:
        self._runtime = runtime
        self._buffer = runtime.buffer
        self._settings = runtime.settings
        self._encoder = Encoder()
        self._drain_lock = threading.Lock()
        self._events: list[_Event] = []
        self._awaited = False  # somebody's own thread waits for the lock
        self._stuck = False
        self._finish_by = 0.0
        self._finished = threading.Event()
        self._stale_spools = StaleSpools(runtime.settings)
        self._store: Store | None = None
        self._sender: Sender | None = None
        self._client: Client | None = None
        self._local: local_file.LocalFile | None = None
        self._evidence = evidence.Watch()
        self.daemon: EmbeddedDaemon | None = None
        if runtime.settings.spool_path and runtime.settings.reporting:
            self._buffer.drained_at = time.time()
            self._buffer.help = self._help
            self._buffer.help_after_seconds = 2 * runtime.settings.flush_interval_seconds

    def _open_store(self) -> None:
        """Make store and sender, on the first use: the identity is then what the job's launcher has set."""
        chosen = self._settings
        if chosen.save_local and chosen.output_path:
            self._local = local_file.LocalFile(chosen.output_path, os.environ)
        if not chosen.reporting:
            return
        identity = settings.read_origin(os.environ)
        origin = encode_origin(identity)
        say.debug(f"this process is {', '.join(f'{name} {value}' for name, value in identity.items())}")
        counts = self._buffer.counts
        memory = MemoryStore(origin, chosen.queue_bytes // 2, counts)
        self._store = memory
        if chosen.spool_path:
            self._store = DiskStore(chosen.spool_path, origin, memory, counts, chosen.spool_sync_seconds)
        if self.daemon is None:
            self._make_sender(chosen)

    def _make_sender(self, chosen: settings.Settings) -> None:
        self._client = Client(chosen, self._drain_quietly)
        self._sender = Sender(self._client, self._buffer.counts)
        say.debug(f"sends to {self._client.shown_url}, every {chosen.flush_interval_seconds:g} s")

    def _connect_to_daemon(self, seconds: float) -> None:
        """In embedded mode: take the daemon's address once it has one."""
        if self._sender is None and self._store is not None and self.daemon is not None:
            url = self.daemon.poll(seconds)
            if url is not None:
                self._make_sender(dataclasses.replace(self._settings, base_url=url, token=""))

    def event(self, session: Session, kind: str, details: dict[str, Any]) -> None:
        """Queue an event record."""
        with self._buffer.lock:
            self._events.append((session, kind, time.time(), details))
            if len(self._events) > _MAX_EVENTS:
                del self._events[0]
                self._buffer.counts.lost_others += 1

    def run_until_stopped(self) -> None:
        """The thread: sleeps in C until there is a batch or the interval is over."""
        wake = self._buffer.wake
        while wake is self._buffer.wake:  # another one after a fork: this is not our process any more
            wake.acquire(True, self._settings.flush_interval_seconds)
            finish_by = self._finish_by  # one that is asked for from here on gets a round of its own
            try:
                if finish_by:
                    self.deliver_all(finish_by)
                else:
                    self.cycle()
            except Exception as error:  # noqa: BLE001 - the thread must live, whatever one cycle meets
                self._buffer.counts.missed += 1
                say.report_failure("worker", "internal error", error)
            if finish_by and self._finish_by == finish_by:
                self._finish_by = 0.0
                self._finished.set()

    def cycle(self) -> None:
        """One round: drain, look around, send."""
        self.drain(gently=not self._buffer.urgent)
        self._send_evidence(final=False)
        self._connect_to_daemon(0.0)
        while not self._is_resting() and self._send_one(REQUEST_SECONDS):
            continue
        self._sync()
        self._adopt()

    def _is_resting(self) -> bool:
        """Whether what waits is to wait for more, because the receiver is slow; not in a process about to end."""
        if self._sender is None or self._store is None or self._buffer.urgent:
            return False
        return self._sender.is_resting and not self._store.is_crowded()

    def _sync(self, *, final: bool = False) -> None:
        """After a round of sending, for nothing that has been delivered needs it."""
        if isinstance(self._store, DiskStore):
            self._store.sync(final=final)

    def drain(self, *, gently: bool) -> None:
        """Take all rows and events from the buffer into the store and the local file."""
        with self._drain_lock:
            self._drain(gently)

    def _drain_quietly(self) -> None:
        """While a request waits for the network: keep the queue short. Never raises into the client."""
        try:
            self.drain(gently=True)
            self._sync()
        except Exception as error:  # noqa: BLE001 - the request must go on
            self._buffer.counts.missed += 1
            say.report_failure("worker", "internal error", error)

    def _help(self) -> bool:
        """The caller's thread does what the worker is too late for; waits 0.2 s at most. False: it could not."""
        self._awaited = True
        if not self._drain_lock.acquire(timeout=0.0 if self._stuck else _HELP_WAIT_SECONDS):
            self._stuck = True  # the disk hangs: nobody waits again before the worker is through
            self._awaited = False
            return False
        try:
            self._drain(gently=False)
        except Exception as error:  # noqa: BLE001 - this is the user's thread
            say.report_failure("worker", "internal error", error)
            return False
        finally:
            self._drain_lock.release()
            self._awaited = False
        return True

    def _drain(self, gently: bool) -> None:
        if self._store is None and self._local is None:
            self._open_store()
        rows = self._buffer.drain_rows(time.time())
        with self._buffer.lock:
            events, self._events = self._events, []
        started = [event for event in events if event[1] == "training_started"]
        lines = self._encode_events(started)
        merged = merge(rows, self._count_lost)
        self._buffer.counts.merged_rows += len(rows) - len(merged)
        for begin, end in _piece_ranges(merged):
            if begin and gently and not self._awaited and len(self._buffer.rows) < self._settings.batch_size:
                time.sleep(_REST_SECONDS)
            lines += self._encode_rows(merged[begin:end])
            if len(lines) >= _APPEND_ROWS:
                lines = self._append(lines)
        self._append(lines + self._encode_events([event for event in events if event not in started]))
        self._stuck = False

    def _encode_events(self, events: list[_Event]) -> list[Line]:
        lines: list[Line] = []
        for event in events:
            try:
                lines.append(self._encoder.event(*event))
            except Exception as error:  # noqa: BLE001 - one odd event must not lose its neighbours
                self._buffer.counts.lost_others += 1
                say.report_failure("encode", "an event cannot be encoded", error)
        return lines

    def _encode_rows(self, rows: list[Merged]) -> list[Line]:
        if self._local is not None:
            self._local.append_rows(rows)
        if self._store is None:
            return []
        lines: list[Line] = []
        for row in rows:
            try:
                lines += self._encode_row(row)
            except Exception as error:  # noqa: BLE001 - one odd row must not lose its neighbours
                self._count_lost(len(row[1]), error)
        return lines

    def _encode_row(self, row: Merged) -> list[Line]:
        session, values, row_step, event_time, dropped = row
        if dropped or not session.axes or type(values) is Summary:
            return [self._encoder.row(row)]
        parts = session.by_axis(values)
        if type(values) is Echo:
            parts = [Echo(part, values.of) for part in parts]
        self._buffer.counts.merged_rows -= len(parts) - 1
        return [self._encoder.row((session, part, row_step, event_time, dropped)) for part in parts]

    def _count_lost(self, points: int, error: Exception) -> None:
        self._buffer.counts.dropped_rows += 1
        self._buffer.counts.dropped_points += points
        say.report_failure("encode", "a row cannot be encoded", error)

    def _append(self, lines: list[Line]) -> list[Line]:
        if self._store is not None and lines:
            self._store.append(lines)
        return []

    def _send_evidence(self, *, final: bool) -> None:
        """Evidence that is due, and a sample of the machine where that is asked for."""
        runtime = self._runtime
        for session, source, facts in self._evidence.due(list(runtime.sessions), final=final):
            with self._drain_lock:
                self._append([self._encoder.evidence(session, source, time.time(), facts)])
        runtime.forget_ended()
        if self._settings.enhance_metrics and not final:
            from .system_metrics import sample

            runtime.system_values = sample()

    def _send_one(self, seconds: float) -> bool:
        """Send one batch; True when it is done with and there may be another."""
        if self._store is None or self._sender is None or self._sender.wait_seconds() > 0.0:
            return False
        with self._drain_lock:
            batch = self._store.peek(self._settings.batch_size)
        if batch is None or not self._sender.send(batch, seconds):
            return False
        with self._drain_lock:
            self._store.done(batch)
        return True

    def _adopt(self) -> None:
        """Send what dead processes left in the spool, when there is nothing of our own to do."""
        if isinstance(self._store, DiskStore) and self._sender is not None and not self._store.waiting():
            self._stale_spools.send_waiting(self._sender, self._store.path, lambda: bool(self._finish_by))

    def finish_in_thread(self, deadline: float) -> bool:
        """Have the thread deliver everything until `deadline`; True when nothing is left."""
        self._finished.clear()
        self._finish_by = deadline
        self._buffer.wake_worker()
        self._finished.wait(max(0.0, deadline - time.monotonic()) + 0.05)
        if self._buffer.rows:  # the thread hangs in the network: the spool, or at least the account, must have them
            self._help()
        return self._store is None or not self._store.waiting()

    def deliver_all(self, deadline: float) -> bool:
        """Deliver everything until `deadline` (monotonic); a receiver that is down ends it early."""
        self.drain(gently=False)
        self._send_evidence(final=True)
        self._connect_to_daemon(deadline - time.monotonic())
        if self._store is None:
            return True
        if self._sender is not None:
            self._send_until(deadline, self._store, self._sender)
        self._sync(final=True)
        return not self._store.waiting()

    def _send_until(self, deadline: float, store: Store, sender: Sender) -> None:
        was_healthy = sender.healthy
        sender.try_now()
        while store.waiting():
            left = deadline - time.monotonic()
            if left <= 0.0:
                break
            if self._send_one(left):
                self.drain(gently=False)
                continue
            if isinstance(store, DiskStore) or not was_healthy:
                break  # the spool keeps it; or it has been down for long
            time.sleep(max(0.0, min(sender.wait_seconds(), left)))

    def print_summary(self) -> None:
        """One line if anything that was logged did not arrive."""
        self._buffer.give_up()
        if self._store is None:
            return
        counts = self._buffer.counts
        say.debug(f"{counts.delivered_rows} rows and {counts.delivered_others} events or evidence records delivered")
        rows, points = self._store.rows_left()
        where = self._client.shown_url if self._client is not None else "the embedded daemon"
        why = ""
        if self._sender is not None and self._sender.last_error:
            why = f"; last error: {self._sender.last_error}"
        elif self._sender is not None and self._store.waiting():
            why = "; no answer came in time"
        lost, lost_points = rows + counts.dropped_rows + counts.rejected_rows, points + counts.dropped_points
        if counts.missed:
            why += f"; {counts.missed} internal errors"
        others = self._store.others_left() + counts.lost_others
        if others:
            why += f"; {others} events or evidence records were lost, too" if lost else ""
        if lost or counts.missed:
            logged = counts.logged - counts.merged_rows
            say.once("account", f"{lost} of {logged} rows ({lost_points} points) did not reach {where}{why}")
        elif others:
            say.once("account", f"{others} events or evidence records did not reach {where}{why}")
        elif self._store.waiting():
            say.once("account", f"rows that did not reach {where} wait in the spool{why}")

    def close(self) -> None:
        """Let go of connection and files."""
        if self._client is not None:
            self._client.close()
        if self._store is not None:
            self._store.close()

    def abandon_in_child(self) -> None:
        """After a fork: connection, spool file and thread are the parent's; begin anew when a row comes."""
        if self._client is not None:
            self._client.abandon_in_child()
        if isinstance(self._store, DiskStore):
            self._store.abandon_in_child()
        self._store, self._sender, self._client, self._local = None, None, None, None
        self._buffer.drained_at = time.time()
        self._drain_lock = threading.Lock()
        self._finished = threading.Event()
        self._finish_by = 0.0
        self._events = []


def _piece_ranges(rows: list[Merged]) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each piece of `rows` that is encoded at a stretch."""
    begin = metrics = 0
    for end, row in enumerate(rows, 1):
        metrics += _ROW_METRICS + len(row[1])
        if metrics >= _PIECE_METRICS or end == len(rows):
            yield begin, end
            begin, metrics = end, 0
