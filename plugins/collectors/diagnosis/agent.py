"""The diagnosis agent of a training node."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from lens_core.commands import PluginHost
from lens_core.plugin_api.diagnosis import DEFAULT_MAX_RESTARTS, Advice, Cause, Decision, advise, failures_of

from .base import AgentOptions, DataCollector
from .master_client import client_from_environment
from .readers import LogCollector, last_lines

LOCAL_INSTANCE = -3


class DiagnosisActionType(str, Enum):
    """The actions; the values are DLRover's, and compare equal to its strings."""

    NONE = Decision.NONE.value
    RESTART_WORKER = Decision.RESTART_WORKER.value
    RELAUNCH_WORKER = Decision.RELAUNCH_WORKER.value
    JOB_ABORT = Decision.JOB_ABORT.value


@dataclass(frozen=True)
class DiagnosisAction:
    """One action: `reason` says why in words, `cause` by name, `evidence` is the line that told. Times in seconds."""

    action_type: DiagnosisActionType
    reason: str = ""
    cause: str = ""
    evidence: str = ""
    rank: int | None = None
    instance: int = LOCAL_INSTANCE
    timestamp: float = field(default_factory=time.time)

    @classmethod
    def from_advice(cls, advice: Advice) -> DiagnosisAction:
        """The action of an advice."""
        kind = DiagnosisActionType(advice.decision.value)
        return cls(kind, advice.reason, advice.cause.value, advice.evidence, advice.rank)


logger = logging.getLogger("lens.diagnosis")

MAX_QUEUED = 64


class _Item(NamedTuple):
    collector: DataCollector
    data: Any


class ReportQueue:
    """Hands what was collected to the collectors' `store_data`, in order; when it is full, the oldest goes."""

    def __init__(self, max_queued: int = MAX_QUEUED) -> None:
        self.dropped = 0
        self._items: deque[_Item] = deque()
        self._max_queued = max_queued
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to report."""
        self._is_stopping = False
        self._thread = threading.Thread(target=self._report_until_stopped, name="lens-diagnosis-reports", daemon=True)
        self._thread.start()

    def stop(self, deadline_seconds: float) -> None:
        """Report what is queued within the deadline, then end."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(deadline_seconds)
        if self._items:
            logger.warning("Unsent reports were dropped when the diagnosis stopped. reports=%d", len(self._items))
            self._items.clear()

    def append_report(self, collector: DataCollector, data: Any) -> None:
        """Queue what was collected; never blocks."""
        with self._changed:
            if len(self._items) >= self._max_queued:
                self._items.popleft()
                self.dropped += 1
                if self.dropped == 1:
                    logger.warning("The master is too slow; dropping the oldest reports.")
            self._items.append(_Item(collector, data))
            self._changed.notify_all()

    def _report_until_stopped(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_stopping)
                if not self._items:
                    return
                item = self._items.popleft()
            item.collector.store_data(item.data)


def installed_collectors(options: AgentOptions) -> list[DataCollector]:
    """Return the collectors of plugins that define `data_collector(options)`; a broken one is logged and left out."""
    found: list[DataCollector] = []
    for kind in _collector_classes():
        make = getattr(kind, "data_collector", None)
        if make is None:
            continue
        try:
            collector = make(options)
        except Exception:
            logger.exception("A plugin's diagnosis collector cannot be made. collector=%s", kind.__qualname__)
            continue
        if collector is not None:
            found.append(collector)
    return found


def _collector_classes() -> list[Any]:
    """All collector classes; of our own plugins nothing else is imported, for this may be a training process."""
    others = {found.name for found in entry_points(group="lens") if _is_ours(found) and not _may_collect(found)}
    unwanted = {name.strip() for name in os.environ.get("LENS_DISABLED_PLUGINS", "").split(",")}
    host = PluginHost.load(disabled=others | unwanted)
    return [host.collector(name) for name in host.names("collector")]


def _is_ours(found: EntryPoint) -> bool:
    return found.value.startswith("lens_plugins.")


def _may_collect(found: EntryPoint) -> bool:
    return found.value.startswith("lens_plugins.collectors.")


STOP_SECONDS = 5.0


class DiagnosisAgent:
    """Collects and reports what a node's training does, and says what to do when it fails.

    One per process by `singleton_instance`. Without a client everything but reporting goes on, with one warning.
    """

    _instance: ClassVar[DiagnosisAgent | None] = None
    _instance_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        training_log_file: str | None = None,
        node_rank: int | None = None,
        local_world_size: int | None = None,
        *,
        max_restarts: int = DEFAULT_MAX_RESTARTS,
    ) -> None:
        self.options = AgentOptions(
            training_log_file=training_log_file, node_rank=node_rank, local_world_size=local_world_size
        )
        self.max_restarts = max_restarts
        self.collectors: list[DataCollector] = []
        self._client: Any = None
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._queue = ReportQueue()
        for collector in (LogCollector(training_log_file), *installed_collectors(self.options)):
            self.register_collector(collector)
        if (client := client_from_environment()) is not None:
            self.set_client(client)

    @classmethod
    def singleton_instance(
        cls,
        training_log_file: str | None = None,
        node_rank: int | None = None,
        local_world_size: int | None = None,
        *,
        max_restarts: int = DEFAULT_MAX_RESTARTS,
    ) -> DiagnosisAgent:
        """The agent of this process; arguments count only for the first call, which makes it."""
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = cls(training_log_file, node_rank, local_world_size, max_restarts=max_restarts)
            elif cls._instance._differs(training_log_file, node_rank, local_world_size):
                logger.warning("The diagnosis agent exists already; ignoring these arguments.")
            return cls._instance

    @property
    def dropped_reports(self) -> int:
        """Return how many reports were dropped because the master was too slow."""
        return self._queue.dropped

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return bool(self._threads)

    def register_collector(self, collector: DataCollector) -> None:
        """Add a collector; it gets the client, and runs from now on if the agent does."""
        with self._lock:
            if collector.node_rank is None:
                collector.node_rank = self.options.node_rank
            collector.set_client(self._client)
            self.collectors.append(collector)
            if self.is_running:
                self._start_thread(collector)

    def set_client(self, client: Any) -> None:
        """Set the receiver of all reports: any object with `report_diagnosis_agent_metrics`, or None."""
        with self._lock:
            self._client = client
            for collector in self.collectors:
                collector.set_client(client)

    def start(self) -> None:
        """Begin to collect; once more changes nothing."""
        with self._lock:
            if self.is_running:
                return
            self._stopping = threading.Event()
            self._queue.start()
            for collector in self.collectors:
                self._start_thread(collector)

    def stop(self, deadline_seconds: float = STOP_SECONDS) -> None:
        """End collecting and report what is there, within the deadline; once more changes nothing."""
        with self._lock:
            threads, self._threads = self._threads, []
            if not threads:
                return
            self._stopping.set()
        # Collectors end by themselves; one that is stuck in a read keeps nobody, its thread is a daemon.
        for thread in threads:
            thread.join(deadline_seconds / (2 * len(threads)))
        self._queue.stop(deadline_seconds / 2)

    def diagnose_training_failure(self, failures: Any = None, restart_count: Any = 0) -> DiagnosisAction:
        """Advise what to do now: restart here, relaunch elsewhere, or stop; `reason` says why. Never raises.

        `failures`: {"error": text}, {rank: {"exitcode", "message", "datetime"}}, or torch elastic's failures. The end
        of the training log is looked at too. The master is told in the background.
        """
        try:
            return self._diagnose(failures, _parse_restarts(restart_count, 0))
        except Exception as error:  # a launcher asks this while it handles a failure; another one would end the job
            logger.exception("A failure could not be diagnosed.")
            reason = f"the failure could not be diagnosed ({type(error).__name__}): restart the processes"
            return DiagnosisAction.from_advice(
                Advice(decision=Decision.RESTART_WORKER, cause=Cause.UNKNOWN, reason=reason)
            )

    def _diagnose(self, failures: Any, restart_count: int) -> DiagnosisAction:
        found = failures_of(failures)
        budget = _parse_restarts(self.max_restarts, DEFAULT_MAX_RESTARTS)
        advice = advise(found, self._end_of_log(), restart_count=restart_count, max_restarts=budget)
        logger.info("Diagnosed a failure. action=%s reason=%s", advice.decision.name, advice.reason)
        self._report_failure("\n".join(failure.message for failure in found) or advice.evidence, restart_count)
        return DiagnosisAction.from_advice(advice)

    def _end_of_log(self) -> str:
        path = self.options.training_log_file
        try:
            return last_lines(Path(path)) if path and Path(path).is_file() else ""
        except (OSError, ValueError, TypeError) as error:
            logger.warning("The training log cannot be read. error=%s", error)
            return ""

    def _report_failure(self, text: str, restart_count: int) -> None:
        report = getattr(self._client, "report_failures", None)
        if report is None or not text:
            return

        def report_failure() -> None:
            try:
                report(text, restart_count, "process_error")
            except Exception as error:  # noqa: BLE001 - the advice stands, whoever receives it
                logger.error("Failed to report the failure to master: %s", error)

        threading.Thread(target=report_failure, name="lens-diagnosis-failure", daemon=True).start()

    def _differs(self, *arguments: Any) -> bool:
        own: Sequence[Any] = (
            self.options.training_log_file,
            self.options.node_rank,
            self.options.local_world_size,
        )
        return any(given is not None and given != known for given, known in zip(arguments, own, strict=True))

    def _start_thread(self, collector: DataCollector) -> None:
        name = f"lens-diagnosis-{collector.what.replace(' ', '-')}"
        thread = threading.Thread(
            target=self._collect_repeatedly, args=(collector, self._stopping), name=name, daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _collect_repeatedly(self, collector: DataCollector, stopping: threading.Event) -> None:
        while True:
            self._collect_once(collector)
            if stopping.wait(collector.interval_seconds):
                return

    def _collect_once(self, collector: DataCollector) -> None:
        try:
            if collector.is_enabled():
                data = collector.collect_data()
                if data:
                    self._queue.append_report(collector, data)
        except Exception:  # one collector's failure touches no other
            logger.exception("A diagnosis collector failed. collector=%s", collector.what)


def _parse_restarts(given: Any, default: int) -> int:
    """A number of restarts as callers have it: None, texts and floats included."""
    try:
        return max(0, int(given))
    except (TypeError, ValueError, OverflowError):
        return default
