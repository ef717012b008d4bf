"""Counters of devices over time: which growth is an error, and which of them can end a job.

Names are those of DCGM's exporter, of AMD's device metrics exporter (with or without its prefix `amd_`), and of the
host collector. A counter that corrected errors is no cause of anything; only its rate is a finding.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from .events import DeviceError
from .slowdowns import reasons_of
from .xids import LEFT_BEHIND, can_stop, is_of_hardware, name_of_xid

_MOST_COUNTERS = 200_000


class _Rule(NamedTuple):
    """A kind of counter: `per_minute` is the growth from which on it is an error, 0 for any growth.

    `counts_at_once`: a value above zero is an error the first time it is seen, because it stays until a reset.
    """

    kind: str
    error: str
    per_minute: float = 0.0
    can_stop: bool = False
    counts_at_once: bool = False


class Reading(NamedTuple):
    """One sample of a counter: `device` names it among those of `node`; `time` in seconds since the epoch."""

    node: str
    device: str
    counter: str
    value: float
    time: float


_XID = "xid"
# NVIDIA's driver team allows 8 replays a minute (as DCGM's health checks do), and 100 CRC errors a second.
_REPLAYS, _CRC_ERRORS = 8.0, 6000.0
_UNCORRECTABLE = _Rule("ecc", "uncorrectable ECC errors", can_stop=True)
_CORRECTED = _Rule("ecc", "many corrected ECC errors", per_minute=60.0)
_PCIE = _Rule("pcie", "PCIe replays", per_minute=_REPLAYS)
_RULES = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _UNCORRECTABLE,
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": _UNCORRECTABLE,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _CORRECTED,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _Rule(
        "row_remap", "a memory row could not be remapped", can_stop=True, counts_at_once=True
    ),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _Rule("row_remap", "memory rows were remapped: uncorrectable errors"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _PCIE,
    "gpu_ecc_uncorrect_total": _UNCORRECTABLE,
    "gpu_ecc_correct_total": _CORRECTED,
    "pcie_replay_count": _PCIE,
    "gpu.ecc_uncorrectable_total": _UNCORRECTABLE,
    "gpu.ecc_corrected_total": _CORRECTED,
    "gpu.row_remap_failed": _Rule(
        "row_remap", "a memory row could not be remapped", can_stop=True, counts_at_once=True
    ),
    "gpu.remapped_rows": _Rule("row_remap", "memory rows were remapped: uncorrectable errors"),
    "gpu.pcie_replays_total": _PCIE,
    "gpu.nvlink_errors_total": _Rule("nvlink", "NVLink CRC errors and replays", per_minute=_CRC_ERRORS),
    "gpu.nvlink_recoveries_total": _Rule("nvlink", "an NVLink had to recover"),
}
# Newer versions of DCGM leave `_COUNT` out; single links have their numbers (L0 to L17).
_NVLINK = re.compile(
    r"DCGM_FI_DEV_NVLINK_(?P<kind>CRC_FLIT|CRC_DATA|REPLAY|RECOVERY)_ERROR_(?:COUNT_)?(?:TOTAL|L\d{1,2})"
)
_NVLINK_RULES = {
    "CRC_FLIT": _Rule("nvlink", "NVLink CRC errors", per_minute=_CRC_ERRORS),
    "CRC_DATA": _Rule("nvlink", "NVLink CRC errors", per_minute=_CRC_ERRORS),
    "REPLAY": _Rule("nvlink", "NVLink replays", per_minute=_CRC_ERRORS),
    "RECOVERY": _Rule("nvlink", "an NVLink had to recover"),
}
_XID_GAUGE = "DCGM_FI_DEV_XID_ERRORS"
# Their bits are those of NVML; the newer name is that of DCGM 3.3 and later.
_SLOWDOWN_GAUGES = frozenset({"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"})
_SLOWDOWN = "slowdown"
_LASTING_SECONDS = 60.0


def kind_of_counter(name: str) -> str:
    """The kind of error that a metric counts; '' for any other metric."""
    if name == _XID_GAUGE:
        return _XID
    if name in _SLOWDOWN_GAUGES:
        return _SLOWDOWN
    rule = _rule_of(name)
    return "" if rule is None else rule.kind


def _rule_of(name: str) -> _Rule | None:
    rule = _RULES.get(name.removeprefix("amd_"))
    if rule is not None or not name.startswith("DCGM_FI_DEV_NVLINK_"):
        return rule
    found = _NVLINK.fullmatch(name)
    return None if found is None else _NVLINK_RULES[found["kind"]]


class CounterWatch:
    """Compares each sample of a counter with the one before it, and tells of errors.

    A counter that is seen for the first time, or that began anew, says nothing: nobody knows when it grew. A gauge of
    the last Xid and a failed remapping stand until a reset; the first look at them tells of them.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, str, str], tuple[float, float]] = {}
        self._told: dict[tuple[str, str, str], float] = {}
        self._slow_since: dict[tuple[str, str, str], float] = {}

    def update(self, reading: Reading) -> DeviceError | None:
        """Take a sample; the error that it shows, if any."""
        if not math.isfinite(reading.value) or not 0 <= reading.value < 2**53 or not math.isfinite(reading.time):
            return None
        key = (reading.node, reading.device, reading.counter)
        before = self._before.pop(key, None)
        if before is not None and reading.time <= before[1]:
            self._before[key] = before  # late, or the same again
            return None
        self._before[key] = (reading.value, reading.time)
        while len(self._before) > _MOST_COUNTERS:
            gone = next(iter(self._before))
            del self._before[gone]
            self._told.pop(gone, None)
            self._slow_since.pop(gone, None)
        if reading.counter == _XID_GAUGE:
            return _read_xid(reading, before)
        if reading.counter in _SLOWDOWN_GAUGES:
            return self._slowdown(reading, key)
        rule = _rule_of(reading.counter)
        return None if rule is None else self._error_of_growth(reading, before, rule, key)

    def _slowdown(self, reading: Reading, key: tuple[str, str, str]) -> DeviceError | None:
        """A GPU that is slowed down for a minute, said once until it no longer is."""
        reasons = reasons_of(reading.value)
        if not reasons:
            self._slow_since.pop(key, None)
            self._told.pop(key, None)
            return None
        since = self._slow_since.setdefault(key, reading.time)
        if key in self._told or reading.time - since < _LASTING_SECONDS:
            return None
        self._told[key] = reading.time
        return DeviceError(
            error=f"GPU is slowed down: {', '.join(reasons)}",
            kind=_SLOWDOWN,
            rule=f"{reading.counter}: for a minute",
            device=reading.device,
            can_stop=False,
            of_hardware=False,
            figures={"seconds": round(reading.time - since, 3)},
        )

    def _error_of_growth(
        self, reading: Reading, before: tuple[float, float] | None, rule: _Rule, key: tuple[str, str, str]
    ) -> DeviceError | None:
        if before is None:
            if not (rule.counts_at_once and reading.value > 0):
                return None
            before = (0.0, reading.time)
        grown, minutes = reading.value - before[0], (reading.time - before[1]) / 60.0
        if grown <= 0:
            return None
        # A rate is of a minute at least: a few errors within a second are no high rate.
        if rule.per_minute and grown / max(1.0, minutes) <= rule.per_minute:
            return None
        # A rate that stays high is one finding an hour, not one for each sample.
        if rule.per_minute and reading.time < self._told.get(key, -math.inf) + 3600.0:
            return None
        self._told[key] = reading.time
        limit = f"more than {rule.per_minute:g} a minute" if rule.per_minute else "the counter grew"
        return DeviceError(
            error=rule.error,
            kind=rule.kind,
            rule=f"{reading.counter}: {limit}",
            device=reading.device,
            can_stop=rule.can_stop,
            of_hardware=rule.can_stop,
            figures={"before": before[0], "now": reading.value, "seconds": round(minutes * 60.0, 3)},
        )


def _read_xid(reading: Reading, before: tuple[float, float] | None) -> DeviceError | None:
    """The gauge holds the number of the last Xid, which the same error again does not change."""
    number = int(reading.value)
    if (
        number == 0
        or number in LEFT_BEHIND
        or number != reading.value
        or (before is not None and before[0] == reading.value)
    ):
        return None
    if before is None and not is_of_hardware(number):
        return None  # of a program that may have ended long ago
    return DeviceError(
        error=name_of_xid(number),
        kind=_XID,
        rule=f"{_XID_GAUGE}: {'at the first look' if before is None else 'the number changed'}",
        device=reading.device,
        xid=number,
        can_stop=can_stop(number),
        of_hardware=is_of_hardware(number),
    )
