"""The books of one attempt, and how its time is spread over parts of its life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .facts import BUCKETS, Floats, Ints
from .intervals import Divided
from .rows import MICRO
from .series import Life


@dataclass
class Account:
    """The books of one attempt and of the gap after it, in microseconds.

    `spans` say where what was booked at the ends of the attempt lies; `lost` is what was lost of each interval.
    """

    life: Life
    base: Floats | None
    divided: Divided
    first: float = 0.0
    first_lost: float = 0.0
    lost: Floats | None = None
    buckets: Counter[str] = field(default_factory=Counter)
    gap: Counter[str] = field(default_factory=Counter)
    spans: list[tuple[str, int, int, float]] = field(default_factory=list)
    tail: float = 0.0
    open: float = 0.0
    took_back: list[tuple[Account, float]] = field(default_factory=list)

    def book(self, bucket: str, amount: float, begin: int = 0, end: int = 0) -> None:
        """Add an amount to a bucket; with `begin` and `end` where it lies."""
        if amount > 0:
            self.buckets[bucket] += amount  # type: ignore[assignment]
            if end > begin:
                self.spans.append((bucket, begin, end, amount))


def spread(accounts: Sequence[Account], edges: Ints) -> dict[str, Floats]:
    """For each bucket its seconds in each part between two edges (microseconds since the run began)."""
    found = {bucket: np.zeros(len(edges) - 1) for bucket in BUCKETS}
    for account in accounts:
        life, divided = account.life, account.divided
        for bucket, begin, end, amount in account.spans:
            found[bucket] += _share(edges, begin, end, amount)
        for bucket, amount in account.gap.items():
            begin, end = life.end, life.end + round(sum(account.gap.values()))
            found[bucket] += _share(edges, begin, end, amount)
        if not len(life.times):
            continue
        first = int(life.times[0])
        found["productive"] += _share(edges, life.start, first, account.first)
        found["lost"] += _share(edges, life.start, first, account.first_lost)
        found["productive"] += _cumulated(edges, life.times, divided.productive)
        found["slow"] += _cumulated(edges, life.times, divided.slow)
        if account.lost is not None:
            found["lost"] += _cumulated(edges, life.times, account.lost)
        for bucket, where, amounts in divided.named:
            whole = np.zeros(len(life.times) - 1)
            whole[where] = amounts
            found[bucket] += _cumulated(edges, life.times, whole)
    return {bucket: amounts / MICRO for bucket, amounts in found.items()}


def _share(edges: Ints, begin: int, end: int, amount: float) -> Floats:
    if end <= begin or amount <= 0:
        return np.zeros(len(edges) - 1)
    inside: Floats = np.diff(np.clip(edges, begin, end).astype(np.float64)) * (amount / (end - begin))
    return inside


def _cumulated(edges: Ints, times: Ints, amounts: Floats) -> Floats:
    """The amounts of intervals, each spread evenly over its time."""
    if len(times) < 2:
        return np.zeros(len(edges) - 1)
    sums = np.concatenate([[0.0], np.cumsum(amounts)])
    found: Floats = np.diff(np.interp(edges, times, sums))
    return found
