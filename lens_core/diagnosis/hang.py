"""Decides whether a job is hung.

Is a job hung: yes, no or unknown, since when, which ranks, and every rule's reason.

Silence is unknown: nothing is concluded from what nobody reports. A step that has just come outweighs everything;
a job that has ended is not hung.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..base.durations import duration
from ..model.event_types import ATTEMPT_END_EVENTS, START_EVENTS
from ..model.records import Diagnosis
from .facts import LIMITS, Answer, Facts, Finding, HangVerdict, Limits
from .stack_rules import stack_rule
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


def judge_hang(facts: Facts, limits: Limits = LIMITS) -> HangVerdict:
    """The verdict of all rules together."""
    facts = _of_this_attempt(facts)
    ended = _ended(facts)
    if ended is not None:
        return _verdict(ended, [ended])
    steps = step_rule(facts, limits)
    stacks = stack_rule(facts, limits)
    findings = [item for item in (steps, stacks, xpu_rule(facts, limits), watchdog_rule(facts)) if item is not None]
    if not findings:
        reason = "nothing has been reported that could tell: no steps, no stacks, no XPU timer"
        return HangVerdict(verdict="unknown", reason=reason)
    if steps is not None and steps.verdict == "no":
        return _verdict(steps, findings)
    if stacks is not None and stacks.verdict == "no" and not _has_verdict(findings, "watchdog", "yes"):
        return _verdict(stacks, findings)
    found = [item for item in findings if item.verdict == "yes"]
    corroborated = _corroborated(steps, stacks, limits)
    if corroborated is not None and not found:
        found = [corroborated]
    if found:
        return _hung(found, findings, facts)
    decisive = next((item for item in findings if item.verdict == "no"), None)
    return _verdict(decisive, findings) if decisive is not None else _unknown(findings)


def _of_this_attempt(facts: Facts) -> Facts:
    """Without what nodes reported before the job began again: they may be others now."""
    began = max((event.at for event in facts.events if event.type in START_EVENTS), default=None)
    if began is None:
        return facts
    left = [diagnosis for diagnosis in facts.diagnoses if diagnosis.timestamp >= began]
    return msgspec.structs.replace(facts, diagnoses=left)


def _ended(facts: Facts) -> Finding | None:
    """A job that said that it ended, made no step and showed no process after that, is not hung."""
    newest = max(
        (event for event in facts.events if event.type in ATTEMPT_END_EVENTS), key=lambda event: event.at, default=None
    )
    if newest is None or (facts.progress is not None and facts.progress.last_step_at > newest.at):
        return None
    if any(event.type in START_EVENTS and event.at > newest.at for event in facts.events):
        return None
    if _is_alive(facts, newest.at):
        return None
    return Finding(rule="events", verdict="no", reason=f"the job is not running: {newest.type}", since=newest.at)


def _is_alive(facts: Facts, after: float) -> bool:
    """Whether processes of the job were seen well after this; a log's end is reported by launchers too."""
    return any(
        diagnosis.timestamp > after + LIMITS.stack_fresh_seconds
        for diagnosis in facts.diagnoses
        if diagnosis.data_type != "TRAINING_LOG"
    )


def _corroborated(steps: Finding | None, stacks: Finding | None, limits: Limits) -> Finding | None:
    """Overdue steps and stacks that stand still, neither of which is enough alone."""
    if steps is None or stacks is None or steps.since is None or stacks.since is None:
        return None
    if steps.verdict != "unknown" or stacks.verdict != "unknown":
        return None
    return Finding(
        rule="steps and stacks",
        verdict="yes",
        reason=f"{steps.reason}; {stacks.reason}",
        since=min(steps.since, stacks.since),
        ranks=stacks.ranks,
    )


def _has_verdict(findings: Sequence[Finding], rule: str, verdict: Answer) -> bool:
    return any(item.rule == rule and item.verdict == verdict for item in findings)


def _hung(found: Sequence[Finding], findings: Sequence[Finding], facts: Facts) -> HangVerdict:
    ranks = next((item.ranks for item in sorted(found, key=_names_best) if item.ranks), [])
    # A hang began at the latest when it was first seen, and at the earliest with the last step.
    times = [item.since for item in found if item.since is not None]
    times += [facts.progress.last_step_at] if facts.progress is not None else []
    since = min(times, default=None)
    reason = "; ".join(item.reason for item in found)
    return HangVerdict(verdict="yes", reason=reason, since=since, ranks=ranks, findings=list(findings))


def _names_best(finding: Finding) -> int:
    """Stacks know who waits for whom; XPU timer only knows who waits."""
    return 0 if "stacks" in finding.rule else 1


def _verdict(finding: Finding, findings: Sequence[Finding]) -> HangVerdict:
    return HangVerdict(
        verdict=finding.verdict,
        reason=finding.reason,
        since=finding.since,
        ranks=finding.ranks if finding.verdict != "no" else [],
        findings=list(findings),
    )


def _unknown(findings: Sequence[Finding]) -> HangVerdict:
    reason = "; ".join(item.reason for item in findings)
    ranks = next((item.ranks for item in findings if item.ranks), [])
    return HangVerdict(verdict="unknown", reason=reason, ranks=ranks, findings=list(findings))
