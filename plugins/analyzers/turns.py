"""Turns: analyzers look at the workloads that changed, one after the other, at a fixed share of a core."""

from __future__ import annotations

import time
from collections.abc import Iterable


class Turns:
    """The workloads that changed and wait; one that took long to look at rests the longer."""

    def __init__(self, rest_factor: float, longest_rest_seconds: float) -> None:
        self._factor, self._longest = rest_factor, longest_rest_seconds
        self._waiting: dict[str, None] = {}
        self._earliest: dict[str, float] = {}

    def note(self, uids: Iterable[str]) -> None:
        """Remember workloads that changed; one that waits already keeps its turn."""
        self._waiting.update(dict.fromkeys(uids))

    def due(self) -> list[str]:
        """The workloads that may be looked at now, those that wait longest first."""
        now = time.monotonic()
        return [uid for uid in self._waiting if self._earliest.get(uid, 0.0) <= now]

    def looked_at(self, uid: str, took_seconds: float) -> None:
        """Let a workload rest."""
        self._waiting.pop(uid, None)
        rest = min(self._longest, took_seconds * self._factor)
        now = time.monotonic()
        self._earliest[uid] = now + rest
        if len(self._earliest) > 10_000:
            self._earliest = {one: at for one, at in self._earliest.items() if at > now}
