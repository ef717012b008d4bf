"""Errors of GPUs on this machine: the counters of the vendors' packages, and the kernel's own log."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lens_core import Event, Origin

from ...device_errors import CounterWatch, DeviceError, Reading, event_of, parse_kernel_line
from ..diagnosis.processes import RankProcess
from .machine import Value

Tags = tuple[tuple[str, str], ...]
Ask = Callable[..., float | None]
_MOST_LINKS = 18
_CORRECTED, _UNCORRECTABLE = 0, 1
# NVML counts errors since the driver was loaded (volatile), and in all of the device's life (aggregate).
_VOLATILE = 0
_RECOVERY = 1
_LINK_ERRORS = (0, 2, 3)  # replays, CRC errors of flits, CRC errors of data
_RECORD_BYTES = 8192
_MOST_RECORDS = 10_000
_MOST_PARTIAL_BYTES = 64 * 1024


def nvidia_error_counters(nvml: Any, device: Any, tags: Tags, number: Ask) -> Iterator[Value]:
    """NVML's counters of a GPU's errors, as far as this GPU and driver have them."""
    ecc = getattr(nvml, "nvmlDeviceGetTotalEccErrors", None)
    rows = _remapped_rows(nvml, device)
    found = {
        "gpu.ecc_corrected_total": number(ecc, device, _CORRECTED, _VOLATILE),
        "gpu.ecc_uncorrectable_total": number(ecc, device, _UNCORRECTABLE, _VOLATILE),
        "gpu.remapped_rows": rows[0],
        "gpu.row_remap_failed": rows[1],
        "gpu.pcie_replays_total": number(getattr(nvml, "nvmlDeviceGetPcieReplayCounter", None), device),
    }
    errors: list[float] = []
    recoveries: list[float] = []
    for link in range(_MOST_LINKS):
        ask = getattr(nvml, "nvmlDeviceGetNvLinkErrorCounter", None)
        recovered = number(ask, device, link, _RECOVERY)
        if recovered is None:
            break  # no further link
        recoveries.append(recovered)
        errors += [count for kind in _LINK_ERRORS if (count := number(ask, device, link, kind)) is not None]
    if recoveries:
        found |= {"gpu.nvlink_errors_total": sum(errors), "gpu.nvlink_recoveries_total": sum(recoveries)}
    yield from (Value(name, value, tags) for name, value in found.items() if value is not None)


def _remapped_rows(nvml: Any, device: Any) -> tuple[float | None, float | None]:
    """The rows that were remapped for uncorrectable errors, and whether a remapping failed."""
    try:
        _, uncorrectable, _, failed = nvml.nvmlDeviceGetRemappedRows(device)
        return float(uncorrectable), float(bool(failed))
    except Exception:  # noqa: BLE001 - "not supported" is an answer here, and it comes as an exception
        return None, None


def amd_error_counters(smi: Any, device: Any, tags: Tags, number: Ask) -> Iterator[Value]:
    """AMD SMI's counters of a GPU's errors."""
    ecc = getattr(smi, "amdsmi_get_gpu_total_ecc_count", None)
    found = {
        "gpu.ecc_corrected_total": number(ecc, device, field="correctable_count"),
        "gpu.ecc_uncorrectable_total": number(ecc, device, field="uncorrectable_count"),
        "gpu.pcie_replays_total": number(getattr(smi, "amdsmi_get_gpu_pci_replay_counter", None), device),
    }
    yield from (Value(name, value, tags) for name, value in found.items() if value is not None)


class KernelLog:
    """The kernel's messages from now on; `path` is /dev/kmsg, or a file to which the messages are appended."""

    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        self._partial = b""
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            if Path(path).exists():
                say(f"cannot read GPU errors in the kernel's log: {error}; run with CAP_SYSLOG, or set kernel_log: ''")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read_errors(self) -> list[DeviceError]:
        """The errors of devices since the last call."""
        found = []
        for _ in range(_MOST_RECORDS):
            data = self._read_record()
            if not data:
                break
            *lines, self._partial = (self._partial + data).split(b"\n")
            self._partial = self._partial[-_MOST_PARTIAL_BYTES:]
            errors = (parse_kernel_line(line.decode("utf-8", "replace")) for line in lines)
            found += [error for error in errors if error is not None]
        return found

    def _read_record(self) -> bytes:
        """Return the next message of the device, or a piece of the file; empty when there is none now."""
        while self._descriptor is not None:
            try:
                return os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                return b""
            except OSError as error:
                if error.errno != errno.EPIPE:  # messages were overwritten before they were read; the next one is there
                    raise
        return b""


class ErrorWatch:
    """Makes events of the errors of one round."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._counters = CounterWatch()

    def compare(self, values: Sequence[Value], now: float) -> list[DeviceError]:
        """The errors that counters show since the last round."""
        found = []
        for value in values:
            if value.value is not None and value.name.startswith("gpu."):
                device = f"gpu {dict(value.tags).get('gpu', '')}"
                error = self._counters.update(Reading(self._node, device, value.name, value.value, now))
                found += [error] if error is not None else []
        return found

    def events_of_errors(
        self, errors: Sequence[DeviceError], now: float, find_ranks: Callable[[], Sequence[RankProcess]]
    ) -> list[Event]:
        """The events: of the job's rank where the driver names its process, else of the node."""
        ranks = {rank.pid: rank for rank in find_ranks()} if any(error.pid for error in errors) else {}
        return [
            event_of(error, self._node, now, "host", _origin_of(ranks.get(error.pid or 0), self._node))
            for error in errors
        ]


def _origin_of(rank: RankProcess | None, node: str) -> Origin | None:
    said = {} if rank is None else rank.owner._asdict()
    identity = {name: value for name, value in said.items() if value and name != "node_rank"}
    return Origin(node=node, rank=rank.rank, **identity) if rank is not None and identity else None
