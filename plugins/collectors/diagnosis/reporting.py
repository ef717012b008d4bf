"""Between collecting and reporting: a bounded queue and one thread, so that a slow master stops nobody."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any, NamedTuple

from .base import DataCollector

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
        self._thread = threading.Thread(target=self._run, name="lens-diagnosis-reports", daemon=True)
        self._thread.start()

    def stop(self, deadline_seconds: float) -> None:
        """Report what is queued within the deadline, then end."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(deadline_seconds)
        if self._items:
            logger.warning("Reports were left when the diagnosis stopped. reports=%d", len(self._items))
            self._items.clear()

    def put(self, collector: DataCollector, data: Any) -> None:
        """Queue what was collected; never blocks."""
        with self._changed:
            if len(self._items) >= self._max_queued:
                self._items.popleft()
                self.dropped += 1
                if self.dropped == 1:
                    logger.warning("The master is too slow, the oldest reports are dropped.")
            self._items.append(_Item(collector, data))
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_stopping)
                if not self._items:
                    return
                item = self._items.popleft()
            item.collector.store_data(item.data)
