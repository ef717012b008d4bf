"""Lines of the kernel's log about devices, as the drivers print them, and anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.device_errors import XID_NAMES, can_stop, error_of_event, event_of, name_of_xid, parse_kernel_line

ADDRESSES = st.from_regex(r"\A[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\Z")


@pytest.mark.parametrize(
    ("line", "error", "device", "stops"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "Xid 79: GPU fell off the bus",
            "0000:3b:00",
            True,
        ),
        (
            "[1.2] NVRM: Xid (PCI:0002:00:00): 119, pid=1582259, name=nvc:[driver]",
            "Xid 119: GSP did not answer",
            "0002:00:00",
            True,
        ),
        ("NVRM: Xid (0000:01:00): 31, Ch 8", "Xid 31: GPU memory page fault", "0000:01:00", True),
        (
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row",
            "Xid 63: a memory row was marked for remapping",
            "0000:10:1c",
            False,
        ),
        (
            "NVRM: Xid (PCI:0000:10:1c): 149, NETIR_LINK_EVT Nonfatal XC0 i0",
            "Xid 149: NVLink error",
            "0000:10:1c",
            False,
        ),
        ("NVRM: Xid (PCI:0000:10:1c): 149, NETIR_LINK_EVT Fatal XC0 i0", "Xid 149: NVLink error", "0000:10:1c", True),
        ("NVRM: Xid (PCI:0000:10:1c): 4321, something new", "Xid 4321", "0000:10:1c", True),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 30",
            "SXid 20034: fatal error of an NVSwitch",
            "0000:c2:00.0",
            True,
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 12028, Non-fatal, Link 30",
            "SXid 12028: corrected error of an NVSwitch",
            "0000:c2:00.0",
            False,
        ),
        ("NVRM: GPU at PCI:0000:01:00.0 has fallen off the bus.", "GPU fell off the bus", "0000:01:00.0", True),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", "GPU fell off the bus", "0000:01:00.0", True),
        ("amdgpu 0000:83:00.0: amdgpu: GPU reset begin!", "GPU was reset", "0000:83:00.0", True),
        (
            "amdgpu 0000:83:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
            "uncorrectable ECC errors",
            "0000:83:00.0",
            True,
        ),
        (
            "amdgpu 0000:83:00.0: socket: 0 2 correctable hardware errors detected in gfx block",
            "corrected ECC errors",
            "0000:83:00.0",
            False,
        ),
    ],
)
def test_lines_of_drivers(line: str, error: str, device: str, stops: bool) -> None:
    found = parse_kernel_line(line)
    assert found is not None
    assert (found.error, found.device, found.can_stop) == (error, device, stops)
    assert not found.of_hardware or found.can_stop


@pytest.mark.parametrize(
    "line",
    [
        "Messages include: NVRM: Xid",
        "DCGM_FI_DEV_XID_ERRORS > 0",
        "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:c3:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=7, name=python3, Ch 00000010",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54",
        "",
    ],
)
def test_other_lines_are_no_errors(line: str) -> None:
    assert parse_kernel_line(line) is None


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    for line in (text, f"NVRM: Xid {text}", f"SXid ({text}", f"amdgpu {text} correctable hardware errors {text}"):
        parse_kernel_line(line)


@given(
    ADDRESSES,
    st.integers(1, 9999).filter(lambda number: number not in (43, 45)),
    st.from_regex(r"\A[a-z][a-z0-9.-]{0,30}\Z"),
    st.none() | st.integers(1, 2**22),
    st.floats(0, 1e6),
)
def test_what_stands_on_a_line_comes_back_out_of_its_event(
    address: str, number: int, node: str, pid: int | None, uptime: float
) -> None:
    said = "" if pid is None else f"pid={pid}, name=python3, "
    found = parse_kernel_line(
        f"Nov 29 12:00:01 {node} kernel: [{uptime:.6f}] NVRM: Xid (PCI:{address}): {number}, {said}Ch 8"
    )
    assert found is not None
    assert (found.xid, found.device, found.pid, found.node) == (number, address, pid, node)
    event = event_of(found, node, 1e9, "kernel")
    assert event.origin.node == node
    again = error_of_event(event.type, event.details)
    assert again is not None
    assert (again.error, again.xid, again.device) == (name_of_xid(number), number, address)
    assert (again.can_stop, again.of_hardware) == (found.can_stop, found.of_hardware)
    assert found.can_stop == can_stop(number)


@given(
    st.dictionaries(
        st.sampled_from(["xid", "error", "device", "node", "can_stop_job"]),
        st.none() | st.booleans() | st.floats() | st.text(),
    )
)
def test_details_of_any_event_are_read(details: dict[str, object]) -> None:
    for kind in ("device_error", "training_failed"):
        error_of_event(kind, details)


def test_names_are_short_and_begin_with_their_number() -> None:
    assert all(
        name_of_xid(number).startswith(f"Xid {number}: ") and len(name_of_xid(number)) < 60 for number in XID_NAMES
    )
    assert not any(can_stop(number) for number in (43, 45, 63, 92))
