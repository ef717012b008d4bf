"""The verdict on a workload: its state, the first cause of a failure and where it was, the last loss, what is lost.

Made here once; the page, `lens top`, `lens show` and `lens diagnose` show it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..diagnosis import Advice, HangVerdict, RankFailure, advise, failures_since_start
from ..model.queries import EventRow, RunSummary
from ..plugin_api.overview import Overview, State, state_of
from .not_finite import LOSS_EVENT, NotFinite

_CHECKPOINTS = ("checkpoint_saved",)
_TROUBLE = ("failed", "stalled")
_MOST_NAMED = 8
_LONGEST_REASON = 200
_CAUSES = {
    "device_memory": "out of device memory",
    "host_memory": "out of host memory",
    "device_missing": "no usable device",
    "user_exception": "exception",
    "mistake": "cannot start",
    "killed": "killed from outside",
    "terminated": "asked to end",
    "peer_lost": "lost another rank",
    "native_crash": "crash outside of Python",
    "hardware": "hardware error",
}


class FirstCause(msgspec.Struct, frozen=True, kw_only=True):
    """The event from which a failure or a stall follows; '' and None where nobody said it. `at` in ms."""

    type: str
    cause: str
    evidence: str
    at: int
    iteration: int | None
    rank: int | None
    node: str
    pod_name: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest checkpoint that was saved; `at` in ms."""

    iteration: int | None
    at: int


class WorkloadVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict; `summary` is all of it in one line, without the time, `reason` what it says of the first cause.

    `loss` is a text where it is not finite; `not_finite` says since when, of the lowest rank or of another one.
    `checkpoint` is then the newest from before that: later ones hold what made the loss so.

    `steps_lost`: iterations after the last checkpoint, of a failed job; None where no checkpoint is known.
    """

    state: State
    summary: str
    reason: str = ""
    cause: FirstCause | None = None
    action: str | None = None
    advice: str = ""
    last_iteration: int | None = None
    last_logged: int | None = None
    loss_name: str | None = None
    loss: float | str | None = None
    not_finite: NotFinite | None = None
    checkpoint: Checkpoint | None = None
    steps_lost: int | None = None

    @property
    def is_loss_finite(self) -> bool:
        """Whether the newest loss is a number, as far as there is one."""
        return not isinstance(self.loss, str)


class VerdictFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a verdict is made of but the time: it changes only when something is stored."""

    line: Overview
    runs: Sequence[RunSummary]
    events: Sequence[EventRow]
    loss_name: str | None = None
    loss: float | str | None = None
    not_finite: NotFinite | None = None
    hang: HangVerdict | None = None

    def verdict(self, now_ms: int) -> WorkloadVerdict:
        """The verdict at a time."""
        state = state_of(self.line, now_ms)
        failures, restarts = failures_since_start(self.events) if state == "failed" else ([], 0)
        failures.sort(key=lambda pair: (pair[0].at or 0.0, -1 if pair[0].rank is None else pair[0].rank))
        advice = advise([failure for failure, _ in failures], restart_count=restarts) if failures else None
        cause = None
        if advice is not None:
            cause = first_cause(advice, failures)
        elif state in _TROUBLE:
            cause = self._newest_trouble(state)
        elif self.not_finite is not None:
            cause = _cause_of_loss(self.not_finite)
        last = _last_iteration(self.runs)
        checkpoint = self._checkpoint(last)
        lost = None
        if state == "failed" and last is not None and checkpoint is not None and checkpoint.iteration is not None:
            lost = max(0, last - checkpoint.iteration)
        found = WorkloadVerdict(
            state=state,
            summary="",
            reason=self._reason(cause),
            cause=cause,
            action=None if advice is None else advice.decision.name,
            advice=self._advice(advice, checkpoint),
            last_iteration=last,
            last_logged=last_logged(self.line),
            loss_name=self.loss_name,
            loss=self.loss,
            not_finite=self.not_finite,
            checkpoint=checkpoint,
            steps_lost=lost,
        )
        return msgspec.structs.replace(found, summary=summarise_verdict(found))

    def _reason(self, cause: FirstCause | None) -> str:
        if cause is None:
            return ""
        told = [] if cause.type == LOSS_EVENT else [cause_text(cause)]
        if self.not_finite is not None:
            told.append(_loss_text(self.not_finite))
        return _capitalise("; ".join(told))

    def _checkpoint(self, last_iteration: int | None) -> Checkpoint | None:
        """The newest checkpoint to go back to."""
        if self.not_finite is None:
            return last_checkpoint(self.events, last_iteration)
        before = [event for event in self.events if event.timestamp <= self.not_finite.since]
        return last_checkpoint(before, self.not_finite.since_iteration - 1)

    def _advice(self, advice: Advice | None, checkpoint: Checkpoint | None) -> str:
        """Advise on a failure, and on a loss that is not finite."""
        told = [] if advice is None else [advice.reason]
        if self.not_finite is not None:
            told.append(_advise_on_loss(self.not_finite, checkpoint))
        return " ".join(told)

    def _newest_trouble(self, state: State) -> FirstCause | None:
        """The event that a state comes from; of a stall also the rank that the others wait for."""
        event = next((one for one in self.events if one.type == self.line.event), None)
        if event is None:
            return None
        hang = self.hang if state == "stalled" else None
        rank, evidence = event.rank, str(event.details.get("reason") or event.details.get("line") or "")
        if hang is not None and hang.verdict == "yes":
            evidence = hang.reason
            if rank is None and len(hang.ranks) == 1 and hang.ranks[0].isdecimal():
                rank = int(hang.ranks[0])
        return _cause_of(event, "", evidence, rank)


def first_cause(advice: Advice, failures: Sequence[tuple[RankFailure, EventRow]]) -> FirstCause:
    """The earliest failure that tells the advice's cause; failures oldest first."""
    of_rank = [pair for pair in failures if pair[0].rank == advice.rank] or failures
    telling = [pair for pair in of_rank if advice.evidence and advice.evidence[:80] in pair[0].message] or of_rank
    failure, event = telling[0]
    found = _cause_of(event, advice.cause.value, advice.evidence or failure.message, advice.rank)
    if found.node or found.rank is None:
        return found
    node = next((one.node for _, one in failures if one.rank == found.rank and one.node), "")
    return msgspec.structs.replace(found, node=node)


def _cause_of(event: EventRow, cause: str, evidence: str, rank: int | None) -> FirstCause:
    return FirstCause(
        type=event.type,
        cause=cause,
        evidence=evidence[:_LONGEST_REASON],
        at=event.timestamp,
        iteration=event.iteration,
        rank=event.rank if rank is None else rank,
        node=event.node,
        pod_name=event.pod_name,
    )


def _cause_of_loss(found: NotFinite) -> FirstCause:
    last = "" if found.last_finite is None else f", {found.last_finite:.4g} before"
    return FirstCause(
        type=LOSS_EVENT,
        cause="",
        evidence=f"loss {found.value}{last}",
        at=found.since,
        iteration=found.since_iteration,
        rank=found.ranks[0] if len(found.ranks) == 1 else None,
        node=found.node,
        pod_name="",
    )


def _advise_on_loss(found: NotFinite, checkpoint: Checkpoint | None) -> str:
    """Say how to go on after a loss that is not finite: no further step makes it finite again."""
    if checkpoint is None:
        again = "No checkpoint from before that is known: start anew"
    else:
        named = f"of iteration {checkpoint.iteration:,}" if checkpoint.iteration is not None else "from before that"
        again = f"Restart from the checkpoint {named}"
    where = f" on {ranks_text(found.ranks)}" if found.ranks and not found.is_everywhere else ""
    return (
        f"Stop the job if its loss stays so. {again}, with a lower learning rate or clipped gradients,"
        f" or without the data of iteration {found.since_iteration:,}{where}."
    )


def ranks_text(ranks: Sequence[int]) -> str:
    """Name some ranks: `rank 3`, `ranks 3, 5 and 8`, `ranks 0, 1, 2 and 61 others`."""
    names = [str(rank) for rank in ranks]
    if len(names) > _MOST_NAMED:
        names = [*names[: _MOST_NAMED - 1], f"{len(names) - _MOST_NAMED + 1} others"]
    return f"rank {names[0]}" if len(names) == 1 else f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _loss_text(found: NotFinite) -> str:
    """Say since when and where a loss is not finite: `loss NaN since iteration 1,200 on rank 3, gpu-7`."""
    where = ""
    if found.ranks:
        where = " on all ranks" if found.is_everywhere else f" on {ranks_text(found.ranks)}"
    node = "" if not found.node else f"{',' if where else ' on'} {found.node}"
    return f"loss {found.value} since iteration {found.since_iteration:,}{where}{node}"


def _last_iteration(runs: Sequence[RunSummary]) -> int | None:
    """The highest iteration of the attempt that logged last."""
    newest = max(runs, key=lambda run: run.last_seen, default=None)
    if newest is None:
        return None
    of_attempt = [run for run in runs if (run.run_id, run.attempt) == (newest.run_id, newest.attempt)]
    return max((run.last_iteration for run in of_attempt if run.last_iteration is not None), default=None)


def last_logged(line: Overview) -> int:
    """The time of the newest row or state event of a job, in ms; reports about it and its stall do not count."""
    told = 0 if line.event == "stalled" else line.event_at or 0  # Lens says that, not the job
    return max(line.last_row or 0, told) or line.summary.last_seen


def last_checkpoint(events: Sequence[EventRow], last_iteration: int | None) -> Checkpoint | None:
    """The newest checkpoint that is not after what was logged; events newest first."""
    for event in events:
        if event.type in _CHECKPOINTS and (
            event.iteration is None or last_iteration is None or event.iteration <= last_iteration
        ):
            return Checkpoint(iteration=event.iteration, at=event.timestamp)
    return None


def summarise_verdict(verdict: WorkloadVerdict) -> str:
    """Say a verdict in one line: `Out of device memory on rank 11, gpu-node-18; loss 1.38; 339 steps lost`."""
    found = verdict.not_finite
    parts = [verdict.reason or _state_text(verdict)]
    if found is not None:
        if verdict.cause is None:
            parts.append(_loss_text(found))
        elif verdict.cause.type == LOSS_EVENT:
            parts.append(_state_text(verdict))
        if found.last_finite is not None:
            parts.append(f"last finite loss {found.last_finite:.4g} at iteration {found.last_finite_iteration:,}")
    elif verdict.loss is not None:
        value = verdict.loss if isinstance(verdict.loss, str) else f"{verdict.loss:.4g}"
        parts.append(f"loss {value}")
    if verdict.checkpoint is not None and verdict.checkpoint.iteration is not None:
        parts.append(f"checkpoint {verdict.checkpoint.iteration:,}")
    if verdict.steps_lost is not None:
        parts.append(f"{verdict.steps_lost:,} {'step' if verdict.steps_lost == 1 else 'steps'} lost")
    return _capitalise("; ".join(parts))


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _state_text(verdict: WorkloadVerdict) -> str:
    where = "" if verdict.last_iteration is None else f" at iteration {verdict.last_iteration:,}"
    return f"{verdict.state}{where}"


def cause_text(cause: FirstCause) -> str:
    """Say a first cause in words: `out of device memory on rank 11, gpu-node-18`."""
    words = _CAUSES.get(cause.cause, cause.cause.replace("_", " "))
    if cause.cause in ("", "unknown"):
        words = cause.type.replace("_", " ")
    if cause.cause in ("user_exception", "unknown") and cause.evidence:
        words = cause.evidence
    rank = "" if cause.rank is None else f" on rank {cause.rank}"
    node = cause.node or cause.pod_name
    at = "" if cause.iteration is None else f" at iteration {cause.iteration:,}"
    return f"{words}{rank}{', ' if rank and node else ' on ' if node else ''}{node}{at}"
