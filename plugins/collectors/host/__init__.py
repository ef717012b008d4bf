"""The machine that this runs on: processors, memory, disks, network, GPUs, and the training processes on it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from lens_core import Collector, Measurement, Origin, Record, hookimpl

from ...device_errors import DeviceError
from ..catalogue import units
from ..diagnosis.processes import find_ranks
from .gpu_errors import ErrorWatch, KernelLog
from .gpus import GpuReader, find_readers
from .machine import HostSettings, Processes, Rates, Value, read_machine
from .throttling import Throttled, ThrottleWatch, events_of

__all__ = ["Host", "HostSettings", "lens_collectors"]

# Between two looks at a counter; less says little about a processor.
_MIN_SECONDS = 0.5


class Host(Collector):
    """Processors, memory, disks, network and GPUs of this machine, and of each training process on it."""

    name = "host"
    also_called = ("host_metrics", "hostmetrics", "node_exporter", "node_exporter_metrics")
    Settings = HostSettings
    interval_seconds: ClassVar[float] = 15.0
    timeout_seconds: ClassVar[float] = 10.0

    settings: HostSettings

    async def start(self) -> None:
        """Find the GPUs and look at all counters for the first time."""
        # One thread: when a driver hangs, the next run waits for it and fails in time, and no threads pile up.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lens-host")
        self._rates = Rates()
        self._processes = Processes(self.settings.max_processes)
        self._readers: list[GpuReader] = []
        self._throttle_watch = ThrottleWatch()
        self._throttled: list[Throttled] = []
        node = self.settings.node or os.environ.get("NODE_NAME", "") or socket.gethostname()
        self._origin = Origin(node=node)
        self._error_watch = ErrorWatch(node)
        self._errors: list[DeviceError] = []
        self._kernel_log: KernelLog | None = None
        await self._run_in_thread(self._read_first_values)

    async def stop(self) -> None:
        """Leave the thread alone if it hangs."""
        if hasattr(self, "_thread"):
            self._thread.shutdown(wait=False, cancel_futures=True)
            if self._kernel_log is not None:
                self._kernel_log.close()

    async def collect(self) -> Sequence[Record]:
        """All values now."""
        await asyncio.sleep(max(0.0, self._looked_at + _MIN_SECONDS - time.monotonic()))
        measurements = self._measurements(await self._run_in_thread(self._read_values))
        throttled, self._throttled = self._throttled, []
        errors, self._errors = self._errors, []
        if not throttled and not errors:
            return measurements
        now = time.time()
        slowed = await asyncio.to_thread(events_of, throttled, self._origin.node, now, find_ranks)
        failed = await asyncio.to_thread(self._error_watch.events_of_errors, errors, now, find_ranks)
        return [*measurements, *slowed, *failed]

    async def _run_in_thread(self, work: Callable[[], list[Value]]) -> list[Value]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _read_first_values(self) -> list[Value]:
        if self.settings.gpus:
            self._readers = find_readers(lambda text: self.context.logger.info("%s", text))
            if self.settings.kernel_log:
                self._kernel_log = KernelLog(
                    self.settings.kernel_log, lambda text: self.context.logger.info("%s", text)
                )
        return self._read_values()

    def _read_values(self) -> list[Value]:
        values = list(read_machine(self.settings, self._rates))
        gpu_bytes: dict[int, float] = {}
        slowed = [one for reader in self._readers for one in reader.read_throttled()]
        self._throttled += self._throttle_watch.update(slowed)
        for reader in self._readers:
            values += reader.read_gpus()
            values += reader.read_error_counters()
            if self.settings.processes:
                gpu_bytes.update(reader.processes())
        if self.settings.processes:
            values += self._processes.read_processes(gpu_bytes, self._rates)
        self._errors += self._error_watch.compare(values, time.time())
        self._errors += [] if self._kernel_log is None else self._kernel_log.read_errors()
        self._rates.next_round()
        self._looked_at = time.monotonic()
        return values

    def _measurements(self, values: Sequence[Value]) -> list[Record]:
        now = time.time()
        known = units()
        return [
            Measurement(
                origin=self._origin,
                name=value.name,
                value=value.value,
                unit=known.get(value.name, ""),
                event_time=now,
                tags={**self.settings.tags, **dict(value.tags)},
            )
            for value in values
        ]


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [Host]
