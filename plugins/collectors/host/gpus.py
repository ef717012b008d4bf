"""GPUs by the packages of their vendors: nvidia-ml-py (pynvml) and amdsmi, where they are installed and work."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ...device_errors import reasons_of
from .gpu_errors import amd_error_counters, nvidia_error_counters
from .machine import Value
from .throttling import Throttled


class GpuReader(Protocol):
    """The GPUs of one vendor."""

    vendor: str

    def read_gpus(self) -> Iterator[Value]:
        """All values now."""
        ...

    def processes(self) -> dict[int, float]:
        """Memory in bytes on all GPUs by process id."""
        ...

    def read_throttled(self) -> Iterator[Throttled]:
        """The GPUs that the hardware slows down now."""
        ...

    def read_error_counters(self) -> Iterator[Value]:
        """The counters of errors, as far as the GPUs have them."""
        ...


# NVML's number of the clock of the streaming multiprocessors.
_SM_CLOCK = 1


def find_readers(say: Callable[[str], None]) -> list[GpuReader]:
    """The readers that work on this machine; why an installed package does not is said."""
    found: list[GpuReader] = []
    for package, make in (("pynvml", Nvidia), ("amdsmi", Amd)):
        try:
            found.append(make(importlib.import_module(package)))
        except ModuleNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001 - a driver that is missing or broken; each package has its errors
            say(f"{package} is installed but finds no GPU: {type(error).__name__}: {error}")
    return found


def number(ask: Callable[..., Any] | None, *arguments: Any, field: str = "") -> float | None:
    """An answer, or a field of it, as a number; None where this GPU or driver has no such value.

    amdsmi says "N/A" then, NVML raises an error.
    """
    if ask is None:
        return None
    try:
        value = ask(*arguments)
        if field:
            value = value[field] if isinstance(value, dict) else getattr(value, field)
        found = float(value)
    except Exception:  # noqa: BLE001 - "not supported" is an answer here, and it comes as an exception
        return None
    return found if math.isfinite(found) else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


class Nvidia:
    """NVIDIA's GPUs by NVML."""

    vendor = "nvidia"

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        self._devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]

    def read_gpus(self) -> Iterator[Value]:
        """All values now."""
        nvml = self._nvml
        for index, device in enumerate(self._devices):
            tags = (
                ("gpu", str(index)),
                ("vendor", self.vendor),
                ("model", _decode_text(nvml.nvmlDeviceGetName(device))),
            )
            found = {
                "gpu.used_pct": number(nvml.nvmlDeviceGetUtilizationRates, device, field="gpu"),
                "gpu.memory_used_bytes": number(nvml.nvmlDeviceGetMemoryInfo, device, field="used"),
                "gpu.memory_total_bytes": number(nvml.nvmlDeviceGetMemoryInfo, device, field="total"),
                # NVML answers in milliwatts.
                "gpu.power_watts": _times(number(nvml.nvmlDeviceGetPowerUsage, device), 0.001),
                "gpu.temperature_celsius": number(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
                "gpu.sm_clock_mhz": number(getattr(nvml, "nvmlDeviceGetClockInfo", None), device, _SM_CLOCK),
            }
            bits = self._throttle_bits(device)
            if bits is not None:
                found["gpu.throttled"] = float(bool(reasons_of(bits)))
            yield from (Value(name, value, tags) for name, value in found.items())

    def read_throttled(self) -> Iterator[Throttled]:
        """The GPUs that the hardware slows down now."""
        for index, device in enumerate(self._devices):
            reasons = reasons_of(self._throttle_bits(device))
            if reasons:
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(device)
                yield Throttled(index, reasons, tuple(process.pid for process in running))

    def read_error_counters(self) -> Iterator[Value]:
        """The counters of errors, as far as the GPUs have them."""
        for index, device in enumerate(self._devices):
            tags = (("gpu", str(index)), ("vendor", self.vendor))
            yield from nvidia_error_counters(self._nvml, device, tags, number)

    def _throttle_bits(self, device: Any) -> float | None:
        """Return NVML's mask of reasons; its function has another name since 12.2."""
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            bits = number(getattr(self._nvml, name, None), device)
            if bits is not None:
                return bits
        return None

    def processes(self) -> dict[int, float]:
        """Memory in bytes on all GPUs by process id."""
        used: dict[int, float] = {}
        for device in self._devices:
            for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(device):
                used[process.pid] = used.get(process.pid, 0.0) + float(process.usedGpuMemory or 0)
        return used


class Amd:
    """AMD's GPUs by AMD SMI."""

    vendor = "amd"

    def __init__(self, smi: Any) -> None:
        self._smi = smi
        smi.amdsmi_init()
        self._devices = list(smi.amdsmi_get_processor_handles())

    def read_gpus(self) -> Iterator[Value]:
        """All values now."""
        smi = self._smi
        for index, device in enumerate(self._devices):
            tags = (("gpu", str(index)), ("vendor", self.vendor), ("model", self._model(device)))
            vram = smi.AmdSmiMemoryType.VRAM
            hotspot, current = smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            found = {
                "gpu.used_pct": number(smi.amdsmi_get_gpu_activity, device, field="gfx_activity"),
                "gpu.memory_used_bytes": number(smi.amdsmi_get_gpu_memory_usage, device, vram),
                "gpu.memory_total_bytes": number(smi.amdsmi_get_gpu_memory_total, device, vram),
                "gpu.power_watts": self._power(device),
                "gpu.temperature_celsius": number(smi.amdsmi_get_temp_metric, device, hotspot, current),
            }
            yield from (Value(name, value, tags) for name, value in found.items())

    def processes(self) -> dict[int, float]:
        """Memory in bytes on all GPUs by process id."""
        used: dict[int, float] = {}
        for device in self._devices:
            for process in self._smi.amdsmi_get_gpu_process_list(device):
                memory = number(process["memory_usage"].get, "vram_mem") or 0.0
                used[int(process["pid"])] = used.get(int(process["pid"]), 0.0) + memory
        return used

    def read_throttled(self) -> Iterator[Throttled]:
        """None: AMD SMI counts violations instead of saying what holds now."""
        return iter(())

    def read_error_counters(self) -> Iterator[Value]:
        """The counters of errors, as far as the GPUs have them."""
        for index, device in enumerate(self._devices):
            yield from amd_error_counters(self._smi, device, (("gpu", str(index)), ("vendor", self.vendor)), number)

    def _model(self, device: Any) -> str:
        return str(self._smi.amdsmi_get_gpu_asic_info(device).get("market_name", ""))

    def _power(self, device: Any) -> float | None:
        """Return the power draw; the field that holds it depends on the generation of the GPU."""
        for field in ("current_socket_power", "average_socket_power"):
            value = number(self._smi.amdsmi_get_power_info, device, field=field)
            if value is not None:
                return value
        return None


def _decode_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
