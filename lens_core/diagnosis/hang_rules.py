"""The rules of steps, of XPU timer and of the collectives' watchdog, each on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.durations import duration
from ..model.records import Diagnosis
from .facts import Answer, Facts, Finding, Limits
from .wording import by_node, listed, node_name, ordered
from .xpu_timer import hang_flags


def step_rule(facts: Facts, limits: Limits) -> Finding | None:
    """Steps come as usual: no. Overdue for long while something of the job still reports: yes. Else unknown."""
    progress = facts.progress
    if progress is None or progress.usual_seconds is None:
        return None
    silent = facts.now - progress.last_step_at
    allowed = max(limits.min_stall_seconds, limits.stall_factor * progress.usual_seconds)
    if silent <= allowed:
        reason = f"the last step came {duration(silent)} ago; one takes {progress.usual_seconds:.3g} s"
        return Finding(rule="steps", verdict="no", reason=reason)
    overdue = f"no step for {duration(silent)}; one takes {progress.usual_seconds:.3g} s"
    if _is_saving(facts, progress.last_step_at) and silent < limits.checkpoint_seconds:
        return Finding(rule="steps", verdict="unknown", reason=f"{overdue}, but a checkpoint is being saved")
    newest = max((diagnosis.timestamp for diagnosis in facts.diagnoses), default=0.0)
    if facts.now - newest > limits.xpu_fresh_seconds:
        return Finding(
            rule="steps", verdict="unknown", reason=f"{overdue}, and nothing says whether the job still runs"
        )
    long = max(limits.long_stall_seconds, limits.long_stall_factor * progress.usual_seconds)
    verdict: Answer = "yes" if silent > long else "unknown"
    return Finding(rule="steps", verdict=verdict, reason=overdue, since=progress.last_step_at)


def _is_saving(facts: Facts, last_step_at: float) -> bool:
    saves = [event for event in facts.events if event.type.startswith("checkpoint_") and event.at >= last_step_at - 1.0]
    newest = max(saves, key=lambda event: event.at, default=None)
    return newest is not None and newest.type == "checkpoint_saving"


def watchdog_rule(facts: Facts) -> Finding | None:
    """A collective's own watchdog has spoken, and no step came after it."""
    at = max((event.at for event in facts.events if event.type == "collective_timeout"), default=None)
    if at is None or (facts.progress is not None and facts.progress.last_step_at > at):
        return None
    reason = "a collective operation ran into its timeout"
    return Finding(rule="watchdog", verdict="yes", reason=reason, since=at)


def xpu_rule(facts: Facts, limits: Limits) -> Finding | None:
    """Every known rank has had a kernel outstanding in consecutive samples: yes; none has: no; else unknown."""
    nodes = by_node(facts, "XPU_TIMER_METRIC", limits)
    if not nodes:
        return None
    hung: dict[str, float] = {}
    free: list[str] = []
    unclear: list[str] = []
    for node, reports in nodes.items():
        newest = reports[-1]
        if facts.now - newest.timestamp > limits.xpu_fresh_seconds:
            unclear.append(f"node {node_name(node)} is silent")
            continue
        flags = hang_flags(newest.data_content).by_rank
        if not flags:
            unclear.append(f"node {node_name(node)} reports no hang flag")
        for rank, flag in flags.items():
            name = rank if rank.isdigit() else f"{node_name(node)}{rank}"
            since = _flagged_since(reports, rank, limits)
            if not flag:
                free.append(name)
            elif newest.timestamp - since >= limits.xpu_confirm_seconds:
                hung[name] = since
            else:
                unclear.append(f"rank {name} has been flagged once only")
    return _xpu_finding(hung, free, unclear)


def _xpu_finding(hung: Mapping[str, float], free: Sequence[str], unclear: Sequence[str]) -> Finding:
    if hung and not free and not unclear:
        reason = "XPU timer: every rank has a kernel that does not end"
        return Finding(rule="xpu_timer", verdict="yes", reason=reason, since=min(hung.values()), ranks=ordered(hung))
    if free and not hung and not unclear:
        return Finding(rule="xpu_timer", verdict="no", reason="XPU timer: no rank has a kernel that does not end")
    parts = list(unclear)
    if hung:
        parts.insert(0, f"ranks {listed(hung)} have a kernel that does not end")
    if free:
        parts.append(f"ranks {listed(free)} have none")
    return Finding(rule="xpu_timer", verdict="unknown", reason=f"XPU timer: {', '.join(parts)}")


def _flagged_since(reports: Sequence[Diagnosis], rank: str, limits: Limits) -> float:
    """The time of the first of the newest consecutive samples in which a rank is flagged; a gap ends them."""
    since = after = reports[-1].timestamp
    for report in reversed(reports):
        is_flagged = hang_flags(report.data_content).by_rank.get(rank, False)
        if not is_flagged or after - report.timestamp > limits.xpu_gap_seconds:
            break
        since = after = report.timestamp
    return since
