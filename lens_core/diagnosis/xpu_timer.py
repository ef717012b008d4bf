"""Hang indicators of XPU timer's Prometheus text: samples read by their labels and values, not by their looks.

The gauge `XPU_TIMER_COMMON_HANG{rank, local_rank, …}` is above 0 when a kernel (a matrix product, a collective) has
been outstanding for XPU_TIMER_HANG_TIMEOUT seconds (300 by default).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

HANG = "XPU_TIMER_COMMON_HANG"
PREFIX = "XPU_TIMER_"
_UNSET = "NOT_SET"


class HangFlags(NamedTuple):
    """The flag of each rank that has one, and how many lines could not be read."""

    by_rank: dict[str, bool]
    unreadable: int


def hang_flags(text: str) -> HangFlags:
    """The hang flags of one scrape; a rank whose value is not a number has none."""
    flags: dict[str, bool] = {}
    unreadable = 0
    for number, line in enumerate(line for line in text.splitlines() if line.startswith(HANG)):
        try:
            found = list(_samples(line))
        except (ValueError, IndexError, KeyError):
            unreadable += 1
            continue
        for labels, value in found:
            rank = _label_rank(labels) or f"#{number}"
            if not math.isnan(value):
                flags[rank] = flags.get(rank, False) or value > 0
    return HangFlags(flags, unreadable)


def pods_of(text: str) -> set[str]:
    """The pods that the hang flags name."""
    found: set[str] = set()
    for line in text.splitlines():
        if line.startswith(HANG):
            with contextlib.suppress(ValueError, IndexError, KeyError):
                found.update(labels.get("pod_name", "") for labels, _ in _samples(line))
    return found - {"", _UNSET}


def samples_only(text: str) -> str:
    """XPU timer's own samples of a scrape, without comments and what the exporter says about itself."""
    return "\n".join(line for line in text.splitlines() if line.startswith(PREFIX))


def _samples(line: str) -> Iterator[tuple[dict[str, str], float]]:
    for family in text_string_to_metric_families(line + "\n"):
        for sample in family.samples:
            if sample.name == HANG:
                yield sample.labels, sample.value


def _label_rank(labels: dict[str, str]) -> str:
    known = (labels.get(name, "") for name in ("rank", "local_rank"))
    return next((value for value in known if value not in ("", _UNSET)), "")
