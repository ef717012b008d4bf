from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from lens_plugins.collectors.catalogue import metrics
from lens_plugins.collectors.diagnosis.processes import Owner, RankProcess
from lens_plugins.collectors.host import Host, HostSettings
from lens_plugins.collectors.host.gpu_errors import ErrorWatch, KernelLog
from lens_plugins.collectors.host.gpus import Amd, Nvidia, find_readers
from lens_plugins.collectors.host.machine import Rates
from lens_plugins.collectors.host.throttling import ThrottleWatch, events_of

from lens_core import Measurement
from lens_core.testing import make_context
from lens_core.testing.collectors import check_collector


def host(folder: Path, **more: Any) -> Host:
    return Host(HostSettings(**more), make_context("host", folder))


async def collected(collector: Host) -> list[Measurement]:
    await collector.start()
    try:
        return [record for record in await collector.collect() if isinstance(record, Measurement)]
    finally:
        await collector.stop()


def values(found: list[Measurement], name: str) -> dict[tuple[str, ...], float | None]:
    return {tuple(one.tags.values()): one.value for one in found if one.name == name}


async def test_what_is_measured_is_true(tmp_path: Path) -> None:
    found = await collected(host(tmp_path, node="n1", tags={"site": "x"}))
    plain = {one.name: one for one in found}
    memory = psutil.virtual_memory()
    assert plain["host.memory.total_bytes"].value == memory.total
    assert plain["host.memory.available_bytes"].value == pytest.approx(memory.available, rel=0.2)
    assert plain["host.cpu.count"].value == psutil.cpu_count()
    busy = plain["host.cpu.used_pct"].value
    assert busy is not None
    assert 0 <= busy <= 100
    assert {one.origin.node for one in found} == {"n1"}
    assert all(one.tags["site"] == "x" for one in found)
    assert plain["host.memory.total_bytes"].unit == "byte"


async def test_every_name_and_tag_is_in_the_catalogue(tmp_path: Path) -> None:
    known = {metric.name: set(metric.tags) for metric in metrics() if metric.collector == "host"}
    for one in await collected(host(tmp_path)):
        assert set(one.tags) <= known[one.name], one


@pytest.fixture
def training_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that works, as torchrun would start it."""
    script = "print('up', flush=True)\nwhile True: pass"
    environ = {**os.environ, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    process = subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


async def test_training_processes(tmp_path: Path, training_process: subprocess.Popen[bytes]) -> None:
    found = await collected(host(tmp_path))
    key = (str(training_process.pid), "5", "1")
    used = values(found, "process.cpu.used_pct")[key]
    assert used is not None
    assert 1 < used <= 150
    rss = values(found, "process.memory.rss_bytes")[key]
    assert rss == pytest.approx(psutil.Process(training_process.pid).memory_info().rss, rel=0.2)
    (count,) = values(found, "host.training_processes").values()
    assert count is not None
    assert count >= 1


async def test_no_more_processes_than_wanted(tmp_path: Path, training_process: subprocess.Popen[bytes]) -> None:
    found = await collected(host(tmp_path, max_processes=0))
    assert not values(found, "process.threads")
    off = await collected(host(tmp_path, processes=False, disks=False, network=False, gpus=False))
    assert {one.name.split(".")[1] for one in off} == {"cpu", "memory", "swap"}


async def test_the_contract_of_collectors(tmp_path: Path) -> None:
    await check_collector(host(tmp_path))


def test_rates() -> None:
    rates = Rates()
    assert rates.rate(("a",), 10, 1.0) is None
    rates.next_round()
    assert rates.rate(("a",), 30, 3.0) == 10
    rates.next_round()
    assert rates.rate(("a",), 5, 4.0) is None, "a counter that began anew has no rate"
    rates.next_round()
    rates.next_round()
    assert rates.rate(("a",), 9, 9.0) is None, "a counter that was away has no rate"


def test_a_package_without_a_driver_is_said() -> None:
    pytest.importorskip("pynvml")
    said: list[str] = []
    readers = find_readers(said.append)
    assert readers or any("pynvml is installed but finds no GPU" in text for text in said)


# No GPU is needed to test what becomes of the answers: these have the shape of the vendors' packages.


def test_answers_of_nvml() -> None:
    def unsupported(device: int) -> float:
        raise RuntimeError("not supported")

    nvml = types.SimpleNamespace(
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda device: b"H100",
        nvmlDeviceGetUtilizationRates=lambda device: types.SimpleNamespace(gpu=87, memory=3),
        nvmlDeviceGetMemoryInfo=lambda device: types.SimpleNamespace(used=10, total=80, free=70),
        nvmlDeviceGetPowerUsage=lambda device: 350_000,
        nvmlDeviceGetTemperature=lambda device, kind: unsupported(device),
        nvmlDeviceGetComputeRunningProcesses=lambda device: [types.SimpleNamespace(pid=7, usedGpuMemory=None)],
    )
    reader = Nvidia(nvml)
    found = {value.name: value.value for value in reader.read_gpus()}
    assert found == {
        "gpu.used_pct": 87,
        "gpu.memory_used_bytes": 10,
        "gpu.memory_total_bytes": 80,
        "gpu.power_watts": 350,
        "gpu.temperature_celsius": None,
        "gpu.sm_clock_mhz": None,
    }
    assert {value.tags for value in reader.read_gpus()} == {(("gpu", "0"), ("vendor", "nvidia"), ("model", "H100"))}
    assert reader.processes() == {7: 0}


def test_answers_of_amdsmi() -> None:
    smi = types.SimpleNamespace(
        AmdSmiMemoryType=types.SimpleNamespace(VRAM=0),
        AmdSmiTemperatureType=types.SimpleNamespace(HOTSPOT=1),
        AmdSmiTemperatureMetric=types.SimpleNamespace(CURRENT=0),
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["g0"],
        amdsmi_get_gpu_asic_info=lambda device: {"market_name": "MI300X"},
        amdsmi_get_gpu_activity=lambda device: {"gfx_activity": 55, "umc_activity": 1},
        amdsmi_get_gpu_memory_usage=lambda device, kind: 5,
        amdsmi_get_gpu_memory_total=lambda device, kind: 192,
        amdsmi_get_power_info=lambda device: {"current_socket_power": "N/A", "average_socket_power": 700},
        amdsmi_get_temp_metric=lambda device, kind, metric: 61,
        amdsmi_get_gpu_process_list=lambda device: [{"pid": 9, "memory_usage": {"vram_mem": 4}}],
    )
    reader = Amd(smi)
    assert {value.name: value.value for value in reader.read_gpus()} == {
        "gpu.used_pct": 55,
        "gpu.memory_used_bytes": 5,
        "gpu.memory_total_bytes": 192,
        "gpu.power_watts": 700,
        "gpu.temperature_celsius": 61,
    }
    assert reader.processes() == {9: 4}


def test_a_gpu_that_is_slowed_down_for_a_minute_is_told_once_for_each_rank_on_it() -> None:
    bits = 0x4  # the limit of power: an ordinary state
    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: bits if device == 1 else 0,
        nvmlDeviceGetComputeRunningProcesses=lambda device: [
            types.SimpleNamespace(pid=7),
            types.SimpleNamespace(pid=8),
        ],
    )
    reader, watch = Nvidia(nvml), ThrottleWatch()
    assert [watch.update(reader.read_throttled()) for _ in range(5)] == [[]] * 5
    bits = 0x4 | 0x40 | 0x80
    told = [watch.update(reader.read_throttled()) for _ in range(6)]
    assert [len(one) for one in told] == [0, 0, 0, 1, 0, 0]
    ranks = [RankProcess(7, 13, 5, 64, "python", Owner(workload_uid="job")), RankProcess(8, 14, 6, 64, "python")]
    [event] = events_of(told[3], "gpu-17", 1e9, lambda: ranks)
    assert (event.type, event.origin.rank, event.origin.node) == ("gpu_throttled", 13, "gpu-17")
    assert event.details == {"gpu": 1, "reason": "hardware thermal, power brake"}
    assert events_of([], "gpu-17", 1e9, lambda: ranks) == []


def test_counters_of_errors_of_nvml() -> None:
    counts = {"uncorrectable": 0}

    def link_errors(device: int, link: int, kind: int) -> int:
        if link > 3:
            raise RuntimeError("no such link")
        return 10 * link + kind

    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEccErrors=lambda device, kind, since: counts["uncorrectable"] if kind == 1 else 7,
        nvmlDeviceGetRemappedRows=lambda device: [2, 1, 0, 0],
        nvmlDeviceGetPcieReplayCounter=lambda device: 5,
        nvmlDeviceGetNvLinkErrorCounter=link_errors,
    )
    reader = Nvidia(nvml)
    assert {value.name: value.value for value in reader.read_error_counters()} == {
        "gpu.ecc_corrected_total": 7,
        "gpu.ecc_uncorrectable_total": 0,
        "gpu.remapped_rows": 1,
        "gpu.row_remap_failed": 0,
        "gpu.pcie_replays_total": 5,
        "gpu.nvlink_errors_total": 3 * 60 + 4 * 5,
        "gpu.nvlink_recoveries_total": 64,
    }
    watch = ErrorWatch("gpu-17")
    assert watch.compare([*reader.read_error_counters()], 1e9) == []
    counts["uncorrectable"] = 2
    errors = watch.compare([*reader.read_error_counters()], 1e9 + 15)
    [event] = watch.events_of_errors(errors, 1e9 + 15, lambda: [])
    assert (event.type, event.origin.node, event.details["device"]) == ("device_error", "gpu-17", "gpu 0")
    assert (event.details["before"], event.details["now"], event.details["can_stop_job"]) == (0, 2, True)


def test_a_gpu_that_counts_no_errors_has_no_counters() -> None:
    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=lambda index: index
    )
    assert [*Nvidia(nvml).read_error_counters()] == []


def test_counters_of_errors_of_amdsmi() -> None:
    smi = types.SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["g0"],
        amdsmi_get_gpu_total_ecc_count=lambda device: {"correctable_count": 3, "uncorrectable_count": 1},
        amdsmi_get_gpu_pci_replay_counter=lambda device: "N/A",
    )
    assert {value.name: value.value for value in Amd(smi).read_error_counters()} == {
        "gpu.ecc_corrected_total": 3,
        "gpu.ecc_uncorrectable_total": 1,
    }


async def test_the_kernels_log_tells_of_errors_from_now_on_and_of_the_rank(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=1, of yesterday\n")
    said: list[str] = []
    log = KernelLog(str(path), said.append)
    assert log.read_errors() == []
    with path.open("a") as file:
        file.write(
            "6,2,2,-;usb 1-1: new device\n3,3,3,-;NVRM: Xid (PCI:0000:3b:00): 94, pid=7, name=python3, Contained"
        )
    assert log.read_errors() == [], "the line is not whole yet"
    with path.open("a") as file:
        file.write(" error\n SUBSYSTEM=pci\n")
    [error] = log.read_errors()
    assert (error.error, error.device, error.pid) == ("Xid 94: contained ECC error", "0000:3b:00", 7)
    ranks = [RankProcess(7, 13, 5, 64, "python", Owner(workload_uid="job"))]
    [event] = ErrorWatch("gpu-17").events_of_errors([error], 1e9, lambda: ranks)
    assert (event.origin.workload_uid, event.origin.rank, event.origin.node) == ("job", 13, "gpu-17")
    log.close()
    assert log.read_errors() == []
    assert said == []


def test_a_machine_without_a_kernel_log_has_no_errors(tmp_path: Path) -> None:
    said: list[str] = []
    assert KernelLog(str(tmp_path / "none"), said.append).read_errors() == []
    assert said == []
