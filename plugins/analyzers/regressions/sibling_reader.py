"""Reads the siblings of a job from the store; those that did not change are remembered."""

from __future__ import annotations

import re

import numpy as np

from lens_core import Store, WorkloadSummary

from .finding import Points
from .job import Attempt, read_newest
from .pace import seconds_per_step
from .siblings import LEAST_SIBLINGS, MOST_SIBLINGS, Sibling, best_pace, stem_of

_MOST_CANDIDATES = 100
_MOST_REMEMBERED = 64
_KEPT_POINTS = 1_000


class SiblingReader:
    """Finds siblings by name, and reads the newest attempt of each."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Sibling | None]] = {}

    async def read_siblings(self, store: Store, own: WorkloadSummary) -> list[Sibling]:
        """The newest siblings of a workload, itself left out; none where its name says too little."""
        stem = stem_of(own.name)
        if not stem:
            return []
        words = max(re.split(r"\d+", own.name), key=len)
        page = await store.workloads(search=words, limit=_MOST_CANDIDATES)
        alike = [one for one in page.workloads if one.workload_uid != own.workload_uid and stem_of(one.name) == stem]
        found = [await self._read_sibling(store, one) for one in alike[:MOST_SIBLINGS]]
        return [one for one in found if one is not None]

    async def read_best_pace(self, store: Store, uid: str) -> float | None:
        """The best pace of at least three siblings of a workload, in seconds per step; None with fewer."""
        detail = await store.workload(uid)
        siblings = await self.read_siblings(store, detail.summary) if detail is not None else []
        if detail is None or len(siblings) < LEAST_SIBLINGS:
            return None
        own = await self._read_sibling(store, detail.summary)
        return None if own is None else best_pace(own, siblings)

    async def _read_sibling(self, store: Store, summary: WorkloadSummary) -> Sibling | None:
        uid = summary.workload_uid
        known = self._known.pop(uid, None)
        if known is None or known[0] != summary.last_seen:
            attempt = await read_newest(store, uid)
            known = (summary.last_seen, None if attempt is None else sibling_of(uid, attempt))
        self._known[uid] = known
        while len(self._known) > _MOST_REMEMBERED:
            self._known.pop(next(iter(self._known)))
        return known[1]


def sibling_of(uid: str, attempt: Attempt) -> Sibling:
    """One attempt as siblings see it."""
    progress = attempt.progress
    batch = attempt.points("batch").finite().values
    return Sibling(
        uid=uid,
        loss=_thin(attempt.points("loss").finite()),
        pace=_thin(Points(progress.iterations[1:], progress.times[1:], seconds_per_step(progress))),
        target=attempt.life.stream.target_iteration,
        batch=float(batch[-1]) if len(batch) else 0.0,
        world_size=attempt.life.gpus,
    )


def _thin(points: Points) -> Points:
    """At most so many points, evenly chosen: what is remembered of each sibling is small."""
    if len(points) <= _KEPT_POINTS:
        return points
    chosen = np.linspace(0, len(points) - 1, _KEPT_POINTS).astype(np.int64)
    return Points(points.iterations[chosen], points.times[chosen], points.values[chosen])
