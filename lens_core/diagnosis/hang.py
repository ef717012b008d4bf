"""Is a job hung: yes, no or unknown, since when, which ranks, and every rule's reason.

Silence is unknown: nothing is concluded from what nobody reports. A step that has just come outweighs everything;
a job that has ended is not hung.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model.event_types import ATTEMPT_END_EVENTS, START_EVENTS
from .facts import LIMITS, Answer, Facts, Finding, HangVerdict, Limits
from .hang_rules import step_rule, watchdog_rule, xpu_rule
from .stack_rules import stack_rule


def judge(facts: Facts, limits: Limits = LIMITS) -> HangVerdict:
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
