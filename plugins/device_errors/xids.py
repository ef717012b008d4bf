"""NVIDIA's Xid numbers: what each means, which of them can end a job, and which are faults of the hardware."""

from __future__ import annotations

XID_NAMES = {
    8: "GPU stopped processing",
    12: "driver could not handle an exception of the GPU",
    13: "graphics engine exception",
    18: "bus mastering disabled",
    31: "GPU memory page fault",
    32: "corrupted push buffer",
    38: "driver firmware error",
    39: "copy engine exception",
    43: "GPU stopped processing of one application",
    44: "fault during a context switch",
    45: "channels were cleaned up",
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    56: "display engine error",
    57: "memory interface could not be programmed",
    58: "unstable memory interface",
    60: "video processor exception",
    61: "microcontroller warning",
    62: "microcontroller halted",
    63: "a memory row was marked for remapping",
    64: "a memory row could not be remapped",
    65: "video processor exception",
    66: "illegal access by the driver",
    67: "illegal access by the driver",
    68: "video decoder exception",
    69: "graphics engine class error",
    74: "NVLink error",
    78: "virtual GPU could not start",
    79: "GPU fell off the bus",
    80: "corrupted data was sent to the GPU",
    92: "high rate of single-bit ECC errors",
    93: "too many writes of the InfoROM",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timed out",
    110: "security fault",
    119: "GSP did not answer",
    120: "GSP error",
    121: "corrected error of the chip-to-chip link",
    122: "power management unit could not be read",
    123: "power management unit could not be written",
    125: "InfoROM error",
    136: "link training failed",
    137: "illegal access over NVLink",
    140: "unrecovered ECC error",
    143: "GPU could not be initialized",
    144: "NVLink error",
    145: "NVLink error",
    146: "NVLink error",
    147: "NVLink error",
    148: "NVLink error",
    149: "NVLink error",
    150: "NVLink error",
    151: "key rotation error",
    154: "GPU needs recovery",
    155: "NVLink error",
    156: "a resource was retired",
    157: "a resource could not be retired",
    158: "GPU timed out",
}
# They come when a program has ended, whatever ended it: nobody needs to hear of them.
LEFT_BEHIND = frozenset({43, 45})
# Reports of what was corrected: they end no job.
_HARMLESS = LEFT_BEHIND | {63, 92, 93, 121, 125, 156}
# Those that a program can bring about by itself; as a cause they come after a fault of the hardware.
_OF_PROGRAMS = frozenset({8, 13, 31, 32, 39, 44, 66, 67, 68, 69, 80, 109, 137, 154})


def name_of_xid(number: int) -> str:
    """The number with its meaning, where it is known: `Xid 79: GPU fell off the bus`."""
    meaning = XID_NAMES.get(number)
    return f"Xid {number}: {meaning}" if meaning else f"Xid {number}"


def can_stop(number: int) -> bool:
    """Whether an error of this number can end a job."""
    return number not in _HARMLESS


def is_of_hardware(number: int) -> bool:
    """Whether an error of this number is a fault of the hardware, which no program brings about."""
    return can_stop(number) and number not in _OF_PROGRAMS
