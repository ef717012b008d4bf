"""Errors of devices in lines of the kernel's log, as the drivers of NVIDIA and AMD print them."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from .events import DeviceError
from .xids import LEFT_BEHIND, can_stop, is_of_hardware, name_of_xid

_MOST_CHARACTERS = 4096
_RULE = "a line of the kernel's log"
_ADDRESS = r"(?P<device>[\da-fA-F]{4,8}:[\da-fA-F]{2}:[\da-fA-F]{2}(?:\.\d)?)"
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}\): (?P<xid>\d{{1,4}})\b,? *(?P<rest>.{{0,200}})")
_HOST = re.compile(r"(?:^|\s)([\w.-]{1,253}) kernel:")
_PID = re.compile(r"\bpid='?(\d{1,9})")
_NOT_FATAL = re.compile(r"\bNonfatal\b", re.IGNORECASE)
_SXID = re.compile(rf"SXid \((?:PCI:)?{_ADDRESS}\): (?P<sxid>\d{{1,8}}), *(?P<fatal>Fatal|Non-fatal)\b", re.IGNORECASE)
_OFF_THE_BUS = re.compile(rf"NVRM: GPU(?: at)? (?:PCI:)?{_ADDRESS}:? (?:GPU )?has fallen off the bus")
_RESET = re.compile(rf"amdgpu {_ADDRESS}: (?:amdgpu: )?GPU reset begin")
_ECC = re.compile(
    rf"amdgpu {_ADDRESS}: .{{0,100}}?\b(?P<count>\d{{1,18}}) (?:new )?(?P<kind>un)?correctable hardware errors detected"
    r" in (?P<block>\w{1,32}) block"
)


def parse_kernel_line(text: str) -> DeviceError | None:
    """The error that a line tells of; None for any other line."""
    text = text[:_MOST_CHARACTERS]
    for words, pattern, read in _LINES:
        found = pattern.search(text) if words in text else None
        error = read(found) if found is not None else None
        if found is not None and error is not None:
            host = _HOST.search(text, 0, found.start())
            return msgspec.structs.replace(error, node=host[1]) if host is not None else error
    return None


def _read_xid(found: re.Match[str]) -> DeviceError | None:
    number, rest = int(found["xid"]), found["rest"]
    if number in LEFT_BEHIND:
        return None
    pid = _PID.search(rest)
    is_fatal = can_stop(number) and _NOT_FATAL.search(rest) is None
    return DeviceError(
        error=name_of_xid(number),
        kind="xid",
        rule=_RULE,
        device=found["device"].lower(),
        xid=number,
        pid=int(pid[1]) if pid is not None else None,
        can_stop=is_fatal,
        of_hardware=is_fatal and is_of_hardware(number),
        figures={"reason": rest.strip()} if rest.strip() else {},
    )


def _read_sxid(found: re.Match[str]) -> DeviceError:
    is_fatal = found["fatal"].lower() == "fatal"
    return DeviceError(
        error=f"SXid {int(found['sxid'])}: {'fatal' if is_fatal else 'corrected'} error of an NVSwitch",
        kind="nvswitch",
        rule=_RULE,
        device=found["device"].lower(),
        can_stop=is_fatal,
        of_hardware=is_fatal,
    )


def _read_off_the_bus(found: re.Match[str]) -> DeviceError:
    return DeviceError(error="GPU fell off the bus", kind="bus", rule=_RULE, device=found["device"].lower())


def _read_reset(found: re.Match[str]) -> DeviceError:
    return DeviceError(error="GPU was reset", kind="reset", rule=_RULE, device=found["device"].lower())


def _read_ecc(found: re.Match[str]) -> DeviceError | None:
    count, is_fatal = int(found["count"]), found["kind"] is not None
    if count == 0:
        return None
    return DeviceError(
        error="uncorrectable ECC errors" if is_fatal else "corrected ECC errors",
        kind="ecc",
        rule=_RULE,
        device=found["device"].lower(),
        can_stop=is_fatal,
        of_hardware=is_fatal,
        figures={"count": count, "block": found["block"]},
    )


# Each with words that every such line has, because most lines are others.
_LINES: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], DeviceError | None]], ...] = (
    ("NVRM: Xid", _XID, _read_xid),
    ("SXid (", _SXID, _read_sxid),
    ("fallen off the bus", _OFF_THE_BUS, _read_off_the_bus),
    ("GPU reset begin", _RESET, _read_reset),
    ("correctable hardware errors", _ECC, _read_ecc),
)
