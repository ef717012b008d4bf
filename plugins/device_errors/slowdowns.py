"""Reasons why a GPU is slowed down, as NVML and DCGM give them in the bits of a number."""

from __future__ import annotations

# Those that are no choice of anybody; the limit of power at full load (0x4) is an ordinary state.
REASONS = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}


def reasons_of(bits: float | None) -> tuple[str, ...]:
    """The reasons of a bit mask; none where the GPU does not say."""
    return () if bits is None else tuple(name for bit, name in REASONS.items() if int(bits) & bit)
