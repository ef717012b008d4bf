"""The hook of this process: what the sources talk to. One per process, made at the first run."""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from . import echo, process_end, process_facts, say, settings
from .buffer import Buffer
from .session import Facts, Session

MAX_SESSIONS = 1000


class Runtime:
    """Sessions, the buffer and the worker of this process, through forks and to the end."""

    def __init__(self, chosen: settings.Settings) -> None:
        if chosen.debug:
            say.verbose()
        daemon = None
        if chosen.config and chosen.enabled and chosen.reporting:
            from .embedded import EmbeddedDaemon, spool_folder  # needs `subprocess`, which is slow to import

            daemon = EmbeddedDaemon(chosen.config)
            # The daemon needs seconds to start: a short run leaves its rows to the next one.
            chosen = dataclasses.replace(chosen, spool_path=chosen.spool_path or spool_folder(chosen.config))
        self.settings = chosen
        self.sessions: list[Session] = []
        self.buffer = Buffer(chosen.queue_bytes // 2, chosen.batch_size)
        self.buffer.on = chosen.enabled
        self.buffer.enhance = chosen.enhance_metrics
        from .worker import Worker  # with all that sending needs: at the first run, not when wandb is imported

        self.worker = Worker(self)
        self.worker.daemon = daemon
        self.system_values: dict[str, float] = {}
        self.exit_seconds_left = chosen.exit_deadline_seconds
        self.is_child = False
        self._latest: Session | None = None
        self._failure_told = False
        self._thread: threading.Thread | None = None
        self.buffer.start = self.start_worker
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self.buffer.lock.acquire,
                after_in_parent=self.buffer.lock.release,
                after_in_child=self._after_fork_in_child,
            )
        expect()

    def open_session(self, data_source: str, run_id: str, facts: Facts | None = None) -> Session:
        """A new session; the first one of a process starts the worker."""
        session = Session(data_source, run_id, self.buffer)
        session.facts = facts or {}
        is_run = data_source != "tensorflow"
        # A job has many event writers; one evidence is enough, and none where a run gives better. Of several trackers
        # the first one's has the facts about the process.
        session.evidence_due = is_run or not self.sessions
        session.wants_evidence = data_source == "wandb" or not self.sessions
        with self.buffer.lock:
            # Several trackers of one job begin and end together, which is told once.
            told = [known for known in self.sessions if known.has_events and not known.ended]
            session.is_beside_run = bool(told)
            session.has_events = is_run and all(known.data_source == data_source for known in told)
            if session.has_events:
                for known in self.sessions:
                    known.is_beside_run = True
            if len(self.sessions) > MAX_SESSIONS:
                say.once(
                    "sessions", f"more than {MAX_SESSIONS} runs or writers at once; the end of the oldest is not told"
                )
            self.sessions = [*self.sessions[-MAX_SESSIONS:], session]
        self._latest = session
        if session.has_events:
            facts_of_process = process_facts.process_facts(os.environ)
            self.worker.event(session, "training_started", {"source": data_source, "process": facts_of_process})
        self.start_worker()
        # Again for every session: exit handlers run last in, first out, and ours has to run before wandb's.
        atexit.unregister(self.at_exit)
        atexit.register(self.at_exit)
        return session

    def close_session(self, session: Session, details: dict[str, Any]) -> None:
        """The run is over; said once."""
        if session.ended:
            return
        session.ended = True
        if session.has_events or session.data_source == "tensorflow":
            self._append_end(session, details)
        self.buffer.wake_worker()

    def _append_end(self, session: Session, details: dict[str, Any]) -> None:
        failed = bool(details.get("exception") or details.get("exit_code"))
        self._failure_told = self._failure_told or failed
        kind = "training_failed" if failed else "training_ended"
        self.worker.event(session, kind, {"source": session.data_source, **details})

    def forget_ended(self) -> None:
        """Let go of runs that are over, once their evidence is sent: they hold the user's run objects."""
        with self.buffer.lock:
            self.sessions = [known for known in self.sessions if not known.ended or known.evidence_due]

    def start_worker(self) -> None:
        """Start the worker's thread unless it runs."""
        with self.buffer.lock:
            if self._thread is not None:
                return
            self.buffer.start = None
            if not self._drains_at_child_exit() and self.is_child:
                self.buffer.be_urgent()  # a raw fork may end by os._exit, without any warning
            thread = threading.Thread(target=self.worker.run_until_stopped, name="lens-hook", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # out of threads, or the interpreter is ending: sent at exit instead
                say.debug(f"no worker thread: {error}")
                return
            self._thread = thread

    def _drains_at_child_exit(self) -> bool:
        """In a child of multiprocessing, which ends by its finalizers and, if it was forked, without atexit."""
        util: Any = sys.modules.get("multiprocessing.util")
        process: Any = sys.modules.get("multiprocessing.process")
        if util is None or process is None or process.parent_process() is None:
            return False
        util.Finalize(None, self._at_child_exit, exitpriority=100)
        return True

    def _at_child_exit(self) -> None:
        self.at_exit()
        self.worker.print_summary()

    def _after_fork_in_child(self) -> None:
        echo.forget_other_threads()
        self.buffer.empty_in_child()
        self.worker.abandon_in_child()
        self._thread = None
        self.is_child = True
        self._failure_told = False
        self.buffer.start = self.start_worker
        self.exit_seconds_left = self.settings.exit_deadline_seconds
        self.buffer.lock.release()

    def drain(self, seconds: float) -> bool:
        """Deliver what waits within `seconds`; True when nothing is left."""
        deadline = time.monotonic() + seconds
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            return self.worker.finish_in_thread(deadline)
        return self.worker.deliver_all(deadline)

    def at_exit(self) -> None:
        """Before wandb's own exit handlers: end the sessions and deliver."""
        if self._thread is not None or not self.is_child:
            self._end_sessions()
        self._drain_within_budget()
        self.buffer.be_urgent()

    def _end_sessions(self) -> None:
        """End the runs that this process began, else its first writer beside none; a failure is told in any case.

        A process may fail after its run has ended, and a forked child while it logs into its parent's.
        """
        how = process_end.of_this_process()
        own = [known for known in self.sessions if known.process == os.getpid()]
        runs = [known for known in own if known.has_events]
        for session in runs or [known for known in own if not known.is_beside_run][:1]:
            self.close_session(session, {"finished": False, **how})
        if how and not self._failure_told and self._latest is not None:
            self._append_end(self._latest, {"finished": False, **how})

    def at_exit_last(self) -> None:
        """After everybody's exit handlers: what they logged, then the account."""
        if self._thread is None and not self.buffer.rows:
            if self.worker.daemon is not None:
                self.worker.daemon.stop()
            return
        self._drain_within_budget()
        self.worker.print_summary()
        self.worker.close()
        if self.worker.daemon is not None:
            self.worker.daemon.stop()

    def _drain_within_budget(self) -> None:
        begun = time.monotonic()
        try:
            self.drain(self.exit_seconds_left)
        except Exception as error:  # noqa: BLE001 - the end of the user's process must not be disturbed
            say.report_failure("exit", "could not finish", error)
        self.exit_seconds_left = max(0.0, self.exit_seconds_left - (time.monotonic() - begun))


_runtime: Runtime | None = None
_options: dict[str, Any] = {}
_expected = False


def configure(options: Mapping[str, Any]) -> None:
    """Options of `attach()`, for the runtime to come."""
    _options.update(options)


def get_settings() -> settings.Settings:
    """The settings as they are in force, or as they would be now."""
    return _runtime.settings if _runtime is not None else settings.current(_options)


def get_runtime() -> Runtime:
    """This process's runtime; made now if there is none, from the environment as it is now."""
    global _runtime
    if _runtime is None:
        _runtime = Runtime(settings.current(_options))
    return _runtime


def expect() -> None:
    """Be called last at exit, and notice how it comes to it; needed before wandb registers its own handlers."""
    global _expected
    if not _expected:
        _expected = True
        process_end.watch_exits()
        atexit.register(_at_exit_last)


def _at_exit_last() -> None:
    if _runtime is not None:
        _runtime.at_exit_last()


def existing() -> Runtime | None:
    """The runtime if there is one."""
    return _runtime
