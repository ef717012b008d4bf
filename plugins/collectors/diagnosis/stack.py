"""What the ranks of this node are doing: one rank is watched, all are looked at when it does not move."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from lens_core.plugin_api.diagnosis import RankStack, StackReport, encode_report, own_frames

from . import py_spy
from .base import DataCollector
from .data import DiagnosisDataType
from .processes import RankProcess, by_pids, find_ranks

INTERVAL_SECONDS = 15.0
_AT_ONCE = 2
_NATIVE_AFTER = 4
_LOOK_FOR_RANKS_EVERY = 8


class StackCollector(DataCollector):
    """Reports stacks of the local ranks: of one while it moves, of all while it stands still, native ones then once.

    `pids` names processes; else those with a RANK in their environment, of this process's own job if it has one.
    """

    data_type = DiagnosisDataType.STACK_TRACE
    what = "stack"
    interval_seconds: ClassVar[float] = INTERVAL_SECONDS

    def __init__(
        self, local_world_size: int | None = None, pids: Sequence[int] = (), *, may_pause: bool = True
    ) -> None:
        super().__init__()
        self._local_world_size = local_world_size
        self._pids = list(pids)
        self._may_pause = may_pause
        self._ranks: list[RankProcess] = []
        self._runs = 0
        self._still = 0
        self._still_since: float | None = None
        self._watched: tuple[int, Any] | None = None
        self._watched_since = 0.0
        # Every rank that was seen, by its number: one that is gone while others are not is news.
        self._seen: dict[int, RankProcess] = {}

    @property
    def pids(self) -> list[int]:
        """The processes that are named."""
        return self._pids

    def look_at(self, pids: Sequence[int]) -> None:
        """Name other processes: some have ended, some have begun."""
        self._pids = list(pids)
        self._ranks = []

    def is_enabled(self) -> bool:
        """Whether py-spy is installed."""
        return py_spy.executable() is not None

    def collect_data(self) -> dict[str, RankStack]:
        """The stacks by the ranks' names; empty when there are no ranks. All ranks are looked at in the first run."""
        is_due = self._runs % _LOOK_FOR_RANKS_EVERY == 0
        is_first = not self._runs
        self._runs += 1
        if is_due or not self._ranks:
            self._look_for_ranks()
        watched = self._watch()
        if watched is None:
            return {}
        if not (self._still or is_first):
            return {watched.name: watched}
        if not is_due:
            self._look_for_ranks()  # a rank that died is why others stand still
        return {stack.name: stack for stack in [*self._look_at_all(watched), *self._gone()]}

    def _watch(self) -> RankStack | None:
        """The stack of the first rank that can be read; None without any rank."""
        for rank in list(self._ranks):
            stack = py_spy.stack_of(rank, may_pause=self._may_pause)
            if not stack.error or rank is self._ranks[-1]:
                self._follow(stack)
                return stack
        return None

    def _look_at_all(self, watched: RankStack) -> list[RankStack]:
        # Native frames once, when it has stood still so long that a pause of milliseconds disturbs nobody.
        native = self._still == _NATIVE_AFTER
        rest = [rank for rank in self._ranks if native or rank.pid != watched.pid]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(lambda rank: py_spy.stack_of(rank, native=native, may_pause=self._may_pause), rest))
        return found if native else [watched, *found]

    def to_text(self, data: Any) -> str:
        """The report as text."""
        return self._format_stacks(data)

    def _format_stacks(self, data: Mapping[str, RankStack]) -> str:
        """The report; raises TypeError or AttributeError for anything but what `collect_data` gives."""
        stacks = tuple(data.values())
        if not all(isinstance(stack, RankStack) for stack in stacks):
            raise TypeError("stacks are given as RankStack")
        return encode_report(
            StackReport(ranks=stacks, local_world_size=self._local_world_size, still_since=self._still_since)
        )

    def _look_for_ranks(self) -> None:
        if self._pids:
            self._ranks = by_pids(self._pids)
        else:
            self._ranks = find_ranks(os.environ, self._local_world_size)
        self._seen.update({rank.rank: rank for rank in self._ranks if rank.rank is not None})

    def _gone(self) -> list[RankStack]:
        """The ranks that are not there any more, while others are."""
        here = {rank.rank for rank in self._ranks}
        world = max((rank.world_size or 0 for rank in self._ranks), default=0)
        lost = [rank for number, rank in sorted(self._seen.items()) if number not in here and number < world]
        return [
            RankStack(
                rank=rank.rank,
                local_rank=rank.local_rank,
                world_size=rank.world_size,
                pid=rank.pid,
                has_ended=True,
                error="the process has ended",
            )
            for rank in lost
        ]

    def _follow(self, watched: RankStack) -> None:
        place = (watched.pid, watched.mark or own_frames(watched.frames))
        if place == self._watched and watched.frames:
            self._still += 1
            self._still_since = self._watched_since
        else:
            self._still, self._still_since, self._watched_since = 0, None, time.time()
        self._watched = place
