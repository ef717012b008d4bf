"""One row per step: what several ranks, layers and sinks print of a step is merged, the lowest rank's word first."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict

import msgspec

from ...model.records import StepMetrics

# Ranks print the same step within a few steps of each other.
_STEPS_REMEMBERED = 8
_JOBS_REMEMBERED = 4096
_NO_RANK = -1

Key = tuple[int, int]  # attempt, step
Said = dict[str, tuple[int, float]]  # metric → (rank, value)


class RowMerger:
    """Collects the rows of a batch and remembers those of the last few, so that what says nothing new vanishes."""

    def __init__(self) -> None:
        self._said: OrderedDict[str, OrderedDict[Key, Said]] = OrderedDict()
        self._rows: dict[tuple[str, Key, int], StepMetrics] = {}
        self.merged = 0

    def merge_row(self, job: str, row: StepMetrics) -> None:
        """Take a row; values that a lower rank has said already are left out, those of the same rank are renewed."""
        key = (row.attempt or 1, row.row_step)
        rank = _NO_RANK if row.origin.rank is None else row.origin.rank
        said = self._remembered(job, key)
        values = row.values
        news = (
            {name: value for name, value in values.items() if _is_news(said.get(name), rank, value)} if said else values
        )
        if not news:
            self.merged += 1
            return
        said.update(zip(news, zip(itertools.repeat(rank), news.values()), strict=True))
        known = self._rows.get((job, key, rank))
        if known is not None:
            self.merged += 1
            news = {**known.values, **news}
        self._rows[job, key, rank] = row if news is values else msgspec.structs.replace(row, values=news)

    def drain_rows(self) -> list[StepMetrics]:
        """The rows of the batch; of one step those of several ranks in one, the lowest rank's."""
        rows: dict[tuple[str, Key], StepMetrics] = {}
        for (job, key, _), row in sorted(self._rows.items(), key=lambda item: item[0][2]):
            first = rows.get((job, key))
            if first is None:
                rows[job, key] = row
                continue
            self.merged += 1
            rows[job, key] = msgspec.structs.replace(
                first, values={**row.values, **first.values}, sequence=max(first.sequence, row.sequence)
            )
        in_order = list(dict.fromkeys((job, key) for job, key, _ in self._rows))
        self._rows = {}
        return [rows[place] for place in in_order]

    def forget_job(self, job: str) -> None:
        """Remember nothing of a job: what it says again is new."""
        self._said.pop(job, None)

    def clear(self) -> None:
        """Remember nothing: what comes again is new."""
        self._said.clear()
        self._rows = {}

    def _remembered(self, job: str, key: Key) -> Said:
        of_job = self._said.get(job)
        if of_job is None:
            of_job = self._said[job] = OrderedDict()
            if len(self._said) > _JOBS_REMEMBERED:
                self._said.popitem(last=False)
        else:
            self._said.move_to_end(job)
        said = of_job.get(key)
        if said is None:
            said = of_job[key] = {}
            if len(of_job) > _STEPS_REMEMBERED:
                of_job.popitem(last=False)
        return said


def _is_news(known: tuple[int, float] | None, rank: int, value: float) -> bool:
    if known is None or rank < known[0]:
        return True
    same = known[1] == value or (math.isnan(known[1]) and math.isnan(value))
    return rank == known[0] and not same
