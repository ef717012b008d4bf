"""The attempts of a workload: why each ended, and how many steps the next one had to repeat."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..diagnosis import advise, failures_since_start
from ..model.event_types import FAILURE_EVENTS
from ..model.queries import EventRow, RunSummary
from .verdict import cause_text, first_cause, last_checkpoint

# Reporters tell of an end a little before the last row is known, and of a start after its first one.
_SLACK_MS = 5000


class AttemptEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one run and source, all of its ranks together. Times in ms.

    `end` is failed, stalled, ended, restarted (another attempt follows, and nothing says why) or '' for one that may
    still run; `reason` the first cause. `steps_lost`: iterations that the next attempt repeated, or of a failed last
    one those after its last checkpoint; None where it is not known.
    """

    run_id: str
    attempt: int
    data_source: str
    first_iteration: int | None
    last_iteration: int | None
    began: int
    ended: int
    end: str
    reason: str
    steps_lost: int | None


def describe_attempts(runs: Sequence[RunSummary], events: Sequence[EventRow]) -> list[AttemptEnd]:
    """All attempts, oldest first; events newest first."""
    groups: dict[tuple[str, str, int], list[RunSummary]] = {}
    for run in runs:
        groups.setdefault((run.run_id, run.data_source, run.attempt), []).append(run)
    by_line: dict[tuple[str, str], list[list[RunSummary]]] = {}
    for (run_id, source, _), ranks in sorted(groups.items(), key=lambda one: one[0]):
        by_line.setdefault((run_id, source), []).append(ranks)
    found = [
        _describe_attempt(ranks, attempts[place + 1] if place + 1 < len(attempts) else None, events)
        for attempts in by_line.values()
        for place, ranks in enumerate(attempts)
    ]
    return sorted(found, key=lambda one: (one.began, one.run_id, one.data_source, one.attempt))


def _describe_attempt(
    ranks: Sequence[RunSummary], following: Sequence[RunSummary] | None, events: Sequence[EventRow]
) -> AttemptEnd:
    began, ended = min(run.first_seen for run in ranks), max(run.last_seen for run in ranks)
    last = max((run.last_iteration for run in ranks if run.last_iteration is not None), default=None)
    until = None if following is None else min(run.first_seen for run in following)
    mine = [event for event in events if _is_of(event, ranks[0], began, until)]
    end, reason = _end_of(mine, following is not None)
    lost = None
    if following is not None:
        again = _lowest(following)
        lost = None if last is None or again is None else max(0, last - again + 1)
    elif end == "failed" and last is not None:
        checkpoint = last_checkpoint(mine, last)
        lost = None if checkpoint is None or checkpoint.iteration is None else max(0, last - checkpoint.iteration)
    return AttemptEnd(
        run_id=ranks[0].run_id,
        attempt=ranks[0].attempt,
        data_source=ranks[0].data_source,
        first_iteration=_lowest(ranks),
        last_iteration=last,
        began=began,
        ended=ended,
        end=end,
        reason=reason,
        steps_lost=lost,
    )


def _lowest(ranks: Sequence[RunSummary]) -> int | None:
    return min((run.first_iteration for run in ranks if run.first_iteration is not None), default=None)


def _is_of(event: EventRow, run: RunSummary, began: int, until: int | None) -> bool:
    """Whether an event happened while an attempt was the newest; of another run only if it names no run."""
    if event.run_id and event.run_id != run.run_id:
        return False
    return began - _SLACK_MS <= event.timestamp and (until is None or event.timestamp < until + _SLACK_MS)


def _end_of(events: Sequence[EventRow], has_next: bool) -> tuple[str, str]:
    """The end of an attempt and its reason, by the events of its time, newest first."""
    told = [event for event in events if event.type in FAILURE_EVENTS]
    if told:
        failures, restarts = failures_since_start(told)
        if failures:
            failures.sort(key=lambda pair: (pair[0].at or 0.0, -1 if pair[0].rank is None else pair[0].rank))
            advice = advise([failure for failure, _ in failures], restart_count=restarts)
            return "failed", cause_text(first_cause(advice, failures))
    kinds = [event.type for event in events]
    if "training_ended" in kinds:
        return "ended", ""
    if "stalled" in kinds and (has_next or kinds.index("stalled") == 0):
        return "stalled", ""
    return ("restarted", "") if has_next else ("", "")
