"""Running a collector: on its interval with jitter, one run at a time, its failures its own."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from .door import PipelineDoor
from .errors import LensError
from .plugin_api import Collector

logger = logging.getLogger("lens.collecting")


class CollectorRunner:
    """Calls one collector for as long as the daemon runs and hands what it finds to its door."""

    def __init__(
        self, collector: Collector, door: PipelineDoor, *, interval_seconds: float, timeout_seconds: float
    ) -> None:
        self.collector = collector
        self.name = collector.context.name
        self.door = door
        self.last_error = ""
        self.last_success_at: float | None = None
        self.records = 0
        self.errors = 0
        self._interval_seconds = interval_seconds
        self._timeout_seconds = timeout_seconds

    async def run(self) -> None:
        """Collect until cancelled; the first time at once, then with a tenth of jitter."""
        while True:
            await self.collect_once()
            await asyncio.sleep(self._interval_seconds * random.uniform(0.9, 1.1))

    async def collect_once(self) -> bool:
        """One run; False when it failed."""
        try:
            records = await asyncio.wait_for(self.collector.collect(), self._timeout_seconds)
            if records:
                await self.door.submit(records)
            await self.collector.taken()
        except (TimeoutError, asyncio.TimeoutError):
            return self._failed(f"took longer than {self._timeout_seconds:g} s")
        except LensError as error:
            return self._failed(str(error))
        except Exception as error:
            logger.exception("Collector failed. collector=%s", self.name)
            return self._failed(f"{type(error).__name__}: {error}")
        self.records += len(records)
        self.last_error = ""
        self.last_success_at = time.time()
        return True

    def _failed(self, reason: str) -> bool:
        self.errors += 1
        if reason != self.last_error:
            logger.warning("Collector failed. collector=%s error=%s", self.name, reason)
        self.last_error = reason
        return False
