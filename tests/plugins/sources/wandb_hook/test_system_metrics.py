"""Machine figures: the host's are real; the drivers' bindings are stood in for, since test machines have no GPU."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest
from lens_hook import system_metrics


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Readers are chosen anew in each test."""
    system_metrics._readers = None
    yield
    system_metrics._readers = None


def nvidia(failing: bool = False) -> types.ModuleType:
    """A replacement of nvidia-ml-py with two devices."""
    module = types.ModuleType("pynvml")

    def utilization(handle: int) -> types.SimpleNamespace:
        if failing:
            raise RuntimeError("GPU is lost")
        return types.SimpleNamespace(gpu=50 + handle)

    vars(module).update(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=utilization,
        nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(used=(handle + 1) * 2**30),
    )
    return module


def amd() -> types.ModuleType:
    """A replacement of amdsmi with one device."""
    module = types.ModuleType("amdsmi")
    vars(module).update(
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["handle"],
        amdsmi_get_gpu_activity=lambda handle: {"gfx_activity": 75, "umc_activity": "N/A"},
        amdsmi_get_gpu_memory_usage=lambda handle, kind: 3 * 2**30 if kind == "vram" else 0,
        AmdSmiMemoryType=types.SimpleNamespace(VRAM="vram"),
    )
    return module


def absent(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make modules impossible to import."""
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


def test_the_host_with_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch, "pynvml", "amdsmi")
    values = system_metrics.sample()
    assert set(values) == {"_primus_sys_cpu_percent", "_primus_sys_memory_percent"}
    assert all(0.0 <= value <= 100.0 for value in values.values())


def test_the_host_without_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    absent(monkeypatch, "pynvml", "amdsmi")
    expected = psutil.virtual_memory().percent
    absent(monkeypatch, "psutil")
    values = system_metrics.sample()
    assert set(values) == {"_primus_sys_cpu_percent", "_primus_sys_memory_percent"}
    assert values["_primus_sys_memory_percent"] == pytest.approx(expected, abs=10.0)
    assert 0.0 <= values["_primus_sys_cpu_percent"] <= 100.0


def test_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvidia())
    absent(monkeypatch, "amdsmi")
    values = system_metrics.sample()
    assert (values["_primus_gpu_0_util"], values["_primus_gpu_1_util"]) == (50.0, 51.0)
    assert (values["_primus_gpu_0_mem_used_mb"], values["_primus_gpu_1_mem_used_mb"]) == (1024.0, 2048.0)


def test_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", amd())
    absent(monkeypatch, "pynvml")
    values = system_metrics.sample()
    assert (values["_primus_gpu_0_util"], values["_primus_gpu_0_mem_used_mb"]) == (75.0, 3072.0)


def test_a_device_that_is_lost_takes_nothing_else_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvidia(failing=True))
    absent(monkeypatch, "amdsmi")
    for _ in range(2):
        assert set(system_metrics.sample()) == {"_primus_sys_cpu_percent", "_primus_sys_memory_percent"}
