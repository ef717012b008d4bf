"""Counters of devices: which growth is an error, whatever comes in whatever order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.device_errors import CounterWatch, Reading, kind_of_counter

XID = "DCGM_FI_DEV_XID_ERRORS"
DBE = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
COUNTERS = (
    XID, DBE, REPLAYS, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "gpu_ecc_uncorrect_total",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L3", "amd_gpu_ecc_correct_total", "gpu.row_remap_failed",
)  # fmt: skip


def errors_of(counter: str, values: list[float], each: float = 15.0) -> list[tuple[int, str, bool]]:
    watch = CounterWatch()
    found = [
        (index, watch.update(Reading("n1", "gpu 0", counter, value, 1e9 + each * index)))
        for index, value in enumerate(values)
    ]
    return [(index, error.error, error.can_stop) for index, error in found if error is not None]


@pytest.mark.parametrize(
    ("counter", "values", "expected"),
    [
        (XID, [0, 0, 79, 79, 79], [(2, "Xid 79: GPU fell off the bus", True)]),
        (XID, [79, 79], [(0, "Xid 79: GPU fell off the bus", True)]),
        (XID, [31, 31, 0, 31], [(3, "Xid 31: GPU memory page fault", True)]),
        (XID, [0, 63], [(1, "Xid 63: a memory row was marked for remapping", False)]),
        (DBE, [0, 0, 1, 1, 3], [(2, "uncorrectable ECC errors", True), (4, "uncorrectable ECC errors", True)]),
        (DBE, [7, 7, 7], []),
        (DBE, [7, 0, 0], []),
        (DBE, [7, 0, 1], [(2, "uncorrectable ECC errors", True)]),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", [0, 1, 1], [(1, "a memory row could not be remapped", True)]),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", [1, 1], [(0, "a memory row could not be remapped", True)]),
        ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", [0, 3, 6, 9], []),
        (REPLAYS, [0, 2, 4, 6], []),
        (REPLAYS, [0, 500, 1000, 1500], [(1, "PCIe replays", False)]),
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", [0, 10, 20], []),
        ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", [0, 1e6], [(1, "NVLink CRC errors", False)]),
        ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", [0, 1], [(1, "an NVLink had to recover", False)]),
        ("amd_gpu_ecc_uncorrect_total", [0, 1], [(1, "uncorrectable ECC errors", True)]),
        ("pcie_replay_count", [0, 90], [(1, "PCIe replays", False)]),
        ("DCGM_FI_DEV_GPU_UTIL", [0, 90], []),
    ],
)  # fmt: skip
def test_growth_that_is_an_error(counter: str, values: list[float], expected: list[tuple[int, str, bool]]) -> None:
    assert errors_of(counter, values) == expected


def test_a_rate_that_stays_high_is_said_once_an_hour() -> None:
    assert [index for index, _, _ in errors_of(REPLAYS, [100.0 * index for index in range(500)])] == [1, 241, 481]


@given(st.lists(st.tuples(st.sampled_from(COUNTERS), st.floats(), st.floats(0, 1e10)), max_size=60))
def test_whatever_comes_in_whatever_order_is_taken(samples: list[tuple[str, float, float]]) -> None:
    watch = CounterWatch()
    for counter, value, time in samples:
        error = watch.update(Reading("n", "d", counter, value, time))
        assert error is None or (math.isfinite(value) and value > 0)


@given(st.sampled_from(COUNTERS), st.lists(st.integers(0, 2**40), min_size=1, max_size=30), st.data())
def test_samples_that_come_again_change_nothing(counter: str, values: list[int], data: st.DataObject) -> None:
    watch, again = CounterWatch(), CounterWatch()
    readings = [Reading("n", "d", counter, float(value), 1e9 + 15.0 * index) for index, value in enumerate(values)]
    once = [error for one in readings if (error := watch.update(one)) is not None]
    twice = []
    for index, one in enumerate(readings):
        old = readings[data.draw(st.integers(0, index))]
        twice += [error for sample in (one, one, old) if (error := again.update(sample)) is not None]
    assert twice == once


@given(st.integers(0, 2**40), st.integers(1, 50))
def test_a_counter_that_stands_still_says_nothing(value: int, times: int) -> None:
    for counter in (DBE, REPLAYS, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"):
        assert errors_of(counter, [float(value)] * times) == []


@given(st.sampled_from(COUNTERS))
def test_correctable_errors_and_retries_end_no_job(counter: str) -> None:
    is_harmless = any(word in counter for word in ("SBE", "_correct_", "PCIE", "NVLINK", "replay"))
    found = errors_of(counter, [0.0, 1e7])
    assert kind_of_counter(counter)
    assert not is_harmless or not any(stops for _, _, stops in found)


@pytest.mark.parametrize("counter", ["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"])
def test_a_gpu_that_is_slowed_down_for_a_minute_is_said_once_until_it_is_over(counter: str) -> None:
    values = [4.0, 0x44, 4.0, *[float(0x40)] * 6, 0.0, *[float(0x80)] * 6]
    assert errors_of(counter, values) == [
        (7, "GPU is slowed down: hardware thermal", False),
        (14, "GPU is slowed down: power brake", False),
    ]


def test_devices_and_nodes_are_told_apart() -> None:
    watch = CounterWatch()
    for node in ("n1", "n2"):
        for device in ("gpu 0", "gpu 1"):
            assert watch.update(Reading(node, device, DBE, 0.0, 1e9)) is None
    found = watch.update(Reading("n2", "gpu 1", DBE, 1.0, 1e9 + 15))
    assert found is not None
    assert found.device == "gpu 1"
    assert watch.update(Reading("n1", "gpu 1", DBE, 0.0, 1e9 + 15)) is None
