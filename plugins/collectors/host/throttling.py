"""GPUs that the hardware slows down: told once for each rank that runs on one, when it has lasted a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lens_core import Event, Origin

from ..diagnosis.processes import RankProcess

_LASTING_SAMPLES = 4


class Throttled(NamedTuple):
    """One GPU, the reasons why it is slowed down now, and the processes on it."""

    gpu: int
    reasons: tuple[str, ...]
    pids: tuple[int, ...]


class ThrottleWatch:
    """Counts how long each reason lasts; one that ceases and comes again is told again."""

    def __init__(self) -> None:
        self._lasting: dict[tuple[int, str], int] = {}

    def update(self, found: Iterable[Throttled]) -> list[Throttled]:
        """Take one sample of all GPUs; those of which a reason has just lasted long enough."""
        now = {(one.gpu, reason): one for one in found for reason in one.reasons}
        self._lasting = {key: self._lasting.get(key, 0) + 1 for key in now}
        lasting: dict[int, list[str]] = {}
        for (gpu, reason), count in self._lasting.items():
            if count == _LASTING_SAMPLES:
                lasting.setdefault(gpu, []).append(reason)
        by_gpu = {one.gpu: one for one in now.values()}
        return [by_gpu[gpu]._replace(reasons=tuple(reasons)) for gpu, reasons in lasting.items()]


def events_of(
    throttled: Sequence[Throttled], node: str, time: float, find_ranks: Callable[[], Sequence[RankProcess]]
) -> list[Event]:
    """One event for each rank on these GPUs; GPUs without a rank have none."""
    if not throttled:
        return []
    ranks = {rank.pid: rank for rank in find_ranks()}
    events = []
    for one in throttled:
        for pid in one.pids:
            rank = ranks.get(pid)
            said = rank.owner._asdict() if rank is not None else {}
            identity = {name: value for name, value in said.items() if value and name != "node_rank"}
            if rank is not None and identity:
                events.append(
                    Event(
                        origin=Origin(node=node, rank=rank.rank, **identity),
                        type="gpu_throttled",
                        event_time=time,
                        data_source="host",
                        details={"gpu": one.gpu, "reason": ", ".join(one.reasons)},
                    )
                )
    return events
