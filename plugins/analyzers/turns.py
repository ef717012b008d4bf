"""Turns: analyzers examine the workloads that changed, one after the other, at a fixed share of a core."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from lens_core import Record

_ACTIVE_SECONDS = 3600.0
_RUN_SECONDS = 20.0


class TurnSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that analyzers with turns share."""

    core_share: Annotated[
        float, Meta(gt=0, le=1, description="the share of a core that all looks together may take, on average")
    ] = 0.005
    longest_rest_seconds: Annotated[
        float, Meta(ge=0, description="but a job that changes is looked at again after so long")
    ] = 1800.0


class Turns:
    """The workloads that changed and wait; each rests after a look, so that all looks together keep to their share.

    With few workloads a look comes again after seconds, with many after minutes: the rest is the time that the look
    took, times the number of workloads that changed or were looked at within the last hour, over the share.
    """

    def __init__(self, settings: TurnSettings) -> None:
        self._share, self._longest = settings.core_share, settings.longest_rest_seconds
        self._waiting: dict[str, None] = {}
        self._active: dict[str, float] = {}
        self._earliest: dict[str, float] = {}

    def note(self, uids: Iterable[str]) -> None:
        """Remember workloads that changed; one that waits already keeps its turn."""
        for uid in uids:
            self._waiting[uid] = None
            self._stay_active(uid)

    async def examine_due(
        self, changed: Iterable[str], examine: Callable[[str], Awaitable[Sequence[Record]]]
    ) -> list[Record]:
        """Examine the workloads whose turn it is, as many as 20 seconds allow; the others come next time."""
        self.note(changed)
        ends = time.monotonic() + _RUN_SECONDS
        records: list[Record] = []
        for uid in self.due():
            began = time.monotonic()
            if began > ends:
                break
            records += await examine(uid)
            self.looked_at(uid, time.monotonic() - began)
        return records

    def due(self) -> list[str]:
        """The workloads that may be looked at now, those that wait longest first."""
        now = time.monotonic()
        return [uid for uid in self._waiting if self._earliest.get(uid, 0.0) <= now]

    def looked_at(self, uid: str, took_seconds: float) -> None:
        """Let a workload rest."""
        self._waiting.pop(uid, None)
        self._stay_active(uid)
        now = time.monotonic()
        while next(iter(self._active.values())) < now - _ACTIVE_SECONDS:
            gone = next(iter(self._active))
            del self._active[gone]
            self._earliest.pop(gone, None)
        self._earliest[uid] = now + min(self._longest, took_seconds * len(self._active) / self._share)

    def _stay_active(self, uid: str) -> None:
        self._active.pop(uid, None)
        self._active[uid] = time.monotonic()  # the newest at the end
