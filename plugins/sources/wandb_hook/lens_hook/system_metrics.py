"""CPU, memory and GPU figures for enhancement; sampled on the hook's own thread, only where that was asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from . import say

Reader = Callable[[], "dict[str, float]"]
_MIB = 1024 * 1024
_readers: list[Reader] | None = None


def sample() -> dict[str, float]:
    """The latest figures under the names that wandb gets; whatever cannot be read is left out."""
    global _readers
    if _readers is None:
        _readers = [reader for reader in (_host_reader(), _nvidia_reader(), _amd_reader()) if reader is not None]
    values: dict[str, float] = {}
    for reader in list(_readers):
        try:
            values.update(reader())
        except Exception as error:  # noqa: BLE001 - drivers raise their own errors; that source is given up
            say.debug(f"no more samples from {reader.__qualname__}: {type(error).__name__}: {error}")
            _readers.remove(reader)
    return values


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - a driver binding may fail in any way on a machine without the driver
        say.debug(f"{name} is not usable: {type(error).__name__}")
        return None


def _host_reader() -> Reader:
    psutil = _import("psutil")
    if psutil is None:
        return _ProcReader().read_metrics
    psutil.cpu_percent()  # the first call only sets the mark

    def host() -> dict[str, float]:
        return {
            "_primus_sys_cpu_percent": float(psutil.cpu_percent()),
            "_primus_sys_memory_percent": float(psutil.virtual_memory().percent),
        }

    return host


class _ProcReader:
    """The same figures from /proc where psutil is missing."""

    def __init__(self) -> None:
        self._last = self._cpu_times()

    @staticmethod
    def _cpu_times() -> tuple[float, float]:
        with open("/proc/stat", encoding="ascii") as file:
            fields = [float(field) for field in file.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    def read_metrics(self) -> dict[str, float]:
        total, idle = self._cpu_times()
        passed, idled = total - self._last[0], idle - self._last[1]
        self._last = (total, idle)
        memory: dict[str, float] = {}
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                memory[name] = float(rest.split()[0])
        used = 100.0 * (1.0 - memory["MemAvailable"] / memory["MemTotal"])
        busy = 100.0 * (1.0 - idled / passed) if passed > 0 else 0.0
        return {"_primus_sys_cpu_percent": round(busy, 1), "_primus_sys_memory_percent": round(used, 1)}


def _nvidia_reader() -> Reader | None:
    nvml = _import("pynvml")
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    except Exception as error:  # noqa: BLE001 - no driver, no device
        say.debug(f"no NVIDIA device: {type(error).__name__}")
        return None

    def nvidia() -> dict[str, float]:
        values: dict[str, float] = {}
        for index, handle in enumerate(handles):
            values[f"_primus_gpu_{index}_util"] = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            used = float(nvml.nvmlDeviceGetMemoryInfo(handle).used)
            values[f"_primus_gpu_{index}_mem_used_mb"] = round(used / _MIB, 1)
        return values

    return nvidia if handles else None


def _amd_reader() -> Reader | None:
    smi = _import("amdsmi")
    if smi is None:
        return None
    try:
        smi.amdsmi_init()
        handles = list(smi.amdsmi_get_processor_handles())
    except Exception as error:  # noqa: BLE001 - no driver, no device
        say.debug(f"no AMD device: {type(error).__name__}")
        return None

    def amd() -> dict[str, float]:
        values: dict[str, float] = {}
        for index, handle in enumerate(handles):
            activity = smi.amdsmi_get_gpu_activity(handle).get("gfx_activity")
            if isinstance(activity, (int, float)):
                values[f"_primus_gpu_{index}_util"] = float(activity)
            used = float(smi.amdsmi_get_gpu_memory_usage(handle, smi.AmdSmiMemoryType.VRAM))
            values[f"_primus_gpu_{index}_mem_used_mb"] = round(used / _MIB, 1)
        return values

    return amd if handles else None
