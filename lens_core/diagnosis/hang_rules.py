"""The rules behind the hang verdict, each on its own: steps, stacks, XPU timer, the collectives' watchdog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..errors import LensError
from ..records import Diagnosis
from .facts import Answer, Facts, Finding, Limits
from .merging import StackGroup, merge_stacks, suspects_of, telling_frame, waits_for_others
from .stacks import RankStack, decode_report, own_frames
from .xpu_timer import hang_flags

# Type, and rank or (where that is unknown) id: a node that was replaced keeps its rank.
Node = tuple[str, int, int]
# More of a core than this is computing (or a collective that spins while it waits).
_BUSY_CPU = 0.5


def step_rule(facts: Facts, limits: Limits) -> Finding | None:
    """Steps come as usual: no. Overdue for long while something of the job still reports: yes. Else unknown."""
    progress = facts.progress
    if progress is None or progress.usual_seconds is None:
        return None
    silent = facts.now - progress.last_step_at
    allowed = max(limits.min_stall_seconds, limits.stall_factor * progress.usual_seconds)
    if silent <= allowed:
        reason = f"the last step came {silent:.0f} s ago; one takes {progress.usual_seconds:.3g} s"
        return Finding(rule="steps", verdict="no", reason=reason)
    overdue = f"no step for {silent:.0f} s; one takes {progress.usual_seconds:.3g} s"
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
    by_node = _by_node(facts, "XPU_TIMER_METRIC", limits)
    if not by_node:
        return None
    hung: dict[str, float] = {}
    free: list[str] = []
    unclear: list[str] = []
    for node, reports in by_node.items():
        newest = reports[-1]
        if facts.now - newest.timestamp > limits.xpu_fresh_seconds:
            unclear.append(f"node {_node_name(node)} is silent")
            continue
        flags = hang_flags(newest.data_content).by_rank
        if not flags:
            unclear.append(f"node {_node_name(node)} reports no hang flag")
        for rank, flag in flags.items():
            name = rank if rank.isdigit() else f"{_node_name(node)}{rank}"
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
        return Finding(rule="xpu_timer", verdict="yes", reason=reason, since=min(hung.values()), ranks=_order(hung))
    if free and not hung and not unclear:
        return Finding(rule="xpu_timer", verdict="no", reason="XPU timer: no rank has a kernel that does not end")
    parts = list(unclear)
    if hung:
        parts.insert(0, f"ranks {_list(hung)} have a kernel that does not end")
    if free:
        parts.append(f"ranks {_list(free)} have none")
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


class _RankState(NamedTuple):
    rank: RankStack
    state: str
    since: float
    is_busy: bool = False


def stack_rule(facts: Facts, limits: Limits) -> Finding | None:
    """Every rank stands where it stood, its loop's variables too: yes; all move: no; else unknown."""
    by_node = _by_node(facts, "STACK_TRACE", limits)
    if not by_node:
        return None
    states: dict[str, _RankState] = {}
    silent: list[str] = []
    for node, reports in by_node.items():
        if facts.now - reports[-1].timestamp > limits.stack_fresh_seconds:
            silent.append(f"node {_node_name(node)} is silent")
        else:
            states.update(_rank_states(reports, limits))
    world = max((state.rank.world_size or 0 for state in states.values()), default=0)
    known = {state.rank.rank for state in states.values() if state.rank.rank is not None}
    missing = [rank for rank in range(world) if rank not in known] if known and world > len(known) else []
    # Every rank must have stood for a while, and one of them, the one that is watched, for the whole time.
    now = max((reports[-1].timestamp for reports in by_node.values()), default=0.0)
    longest = max((now - state.since for state in states.values() if state.state == "still"), default=0.0)
    if longest < limits.stack_confirm_seconds:
        states = {name: _undecided(state) for name, state in states.items()}
    return _stack_finding(states, silent, missing)


def _undecided(state: _RankState) -> _RankState:
    return state._replace(state="undecided") if state.state == "still" else state


def _stack_finding(states: Mapping[str, _RankState], silent: list[str], missing: list[int]) -> Finding:
    still = {name: state for name, state in states.items() if state.state == "still"}
    moving = [name for name, state in states.items() if state.state == "moving"]
    if states and len(moving) == len(states) and not silent:
        reason = f"stacks: {_ranks(moving)} {_verb(moving, 'move')}"
        return Finding(rule="stacks", verdict="no", reason=reason)
    groups = merge_stacks(state.rank for state in states.values())
    suspects = suspects_of(groups) or (moving if still and moving else [])
    place = _places(groups)
    if still and len(still) == len(states) and not silent and not missing:
        since = max(state.since for state in still.values())
        has_marks = any(state.rank.mark for state in still.values())
        reason = f"stacks: {'all ' if len(still) > 1 else ''}{_ranks(still)} {_verb(still, 'stand')} still{place}"
        if all(state.is_busy and not waits_for_others(state.rank.frames) for state in still.values()):
            reason = f"{reason}, but all compute and none waits"
            return Finding(rule="stacks", verdict="unknown", reason=reason, since=since, ranks=suspects)
        if has_marks:
            return Finding(rule="stacks", verdict="yes", reason=reason, since=since, ranks=suspects)
        weak = f"{reason}, but no local variables say whether it is one and the same step"
        return Finding(rule="stacks", verdict="unknown", reason=weak, since=since, ranks=suspects)
    ended = [name for name, state in states.items() if state.state == "ended"]
    if ended and still and len(ended) + len(still) == len(states) and not silent and not missing:
        reason = f"stacks: the process of {_ranks(ended)} is gone, {_ranks(still)} {_verb(still, 'stand')} still{place}"
        since = max(state.since for state in still.values())
        return Finding(rule="stacks", verdict="yes", reason=reason, since=since, ranks=ended)
    parts = [*silent, *([f"{_ranks(missing)} report nothing"] if missing else [])]
    if still:
        parts.insert(0, f"{_ranks(still)} {_verb(still, 'stand')} still{place}")
    if moving:
        parts.append(f"{_ranks(moving)} {_verb(moving, 'move')}")
    parts += [f"rank {name}: {state.rank.error}" for name, state in states.items() if state.state == "unreadable"]
    is_whole = still and not silent and not missing
    began = max(state.since for state in still.values()) if is_whole else None
    reason = f"stacks: {', '.join(parts) or 'too few samples yet'}"
    return Finding(rule="stacks", verdict="unknown", reason=reason, since=began, ranks=suspects)


def _rank_states(reports: Sequence[Diagnosis], limits: Limits) -> dict[str, _RankState]:
    samples: dict[str, list[tuple[float, RankStack]]] = defaultdict(list)
    still_since: float | None = None
    for report in reports:
        try:
            found = decode_report(report.data_content)
        except LensError:
            continue  # somebody else's format: stored and shown, but it proves nothing
        still_since = found.still_since
        for rank in found.ranks:
            samples[rank.name].append((report.timestamp, rank))
    newest = max((items[-1][0] for items in samples.values()), default=0.0)
    # Ranks that are looked at less often are judged only while all are looked at.
    states = {
        name: _rank_state(items, limits)
        for name, items in samples.items()
        if newest - items[-1][0] <= limits.stack_gap_seconds / 3
    }
    if still_since is None:
        return states
    # The store keeps only so many reports; the node knows for longer since when it stands.
    return {
        name: state._replace(since=min(state.since, still_since)) if state.state == "still" else state
        for name, state in states.items()
    }


def _rank_state(items: Sequence[tuple[float, RankStack]], limits: Limits) -> _RankState:
    at, last = items[-1]
    if last.has_ended:
        return _RankState(last, "ended", at)
    if last.error:
        return _RankState(last, "unreadable", at)
    since = after = at
    count = 0
    for moment, rank in reversed(items):
        if _place(rank) != _place(last) or after - moment > limits.stack_gap_seconds or not rank.frames:
            break
        since = after = moment
        count += 1
    if count >= limits.stack_samples and at - since >= min(limits.stack_each_seconds, limits.stack_confirm_seconds):
        first = next(rank for moment, rank in items if moment == since)
        if (last.io_bytes - first.io_bytes) / (at - since) > limits.stack_io_bytes_per_second:
            return _RankState(last, "moving", since)  # one long call that reads or writes: a checkpoint, a data set
        return _RankState(last, "still", since, (last.cpu_seconds - first.cpu_seconds) / (at - since) > _BUSY_CPU)
    has_moved = count == 1 and len(items) > 1 and at - items[-2][0] <= limits.stack_moved_seconds
    return _RankState(last, "moving" if has_moved else "undecided", since)


def _place(rank: RankStack) -> tuple[str, tuple[str, ...], int]:
    return rank.mark, own_frames(rank.frames) if not rank.mark else (), rank.pid


def _by_node(facts: Facts, data_type: str, limits: Limits) -> dict[Node, list[Diagnosis]]:
    found: dict[Node, list[Diagnosis]] = defaultdict(list)
    for diagnosis in sorted(facts.diagnoses, key=lambda item: item.timestamp):
        if diagnosis.data_type == data_type and facts.now - diagnosis.timestamp <= limits.window_seconds:
            known = diagnosis.node_rank >= 0
            node = (diagnosis.node_type, diagnosis.node_rank, -1 if known else diagnosis.node_id)
            found[node].append(diagnosis)
    return found


def _places(groups: Iterable[StackGroup]) -> str:
    texts = [f"{_ranks(group.ranks)} in {telling_frame(group)}" for group in groups]
    return f": {', '.join(texts[:4])}" if texts else ""


def _node_name(node: Node) -> str:
    return str(node[1] if node[1] >= 0 else node[2])


def _verb(names: Sequence[str] | Mapping[str, object], verb: str) -> str:
    return f"{verb}s" if len(names) == 1 else verb


def _ranks(names: Iterable[object]) -> str:
    known = list(names)
    return f"{'rank' if len(known) == 1 else 'ranks'} {_list(known)}"


def _order(names: Mapping[str, float]) -> list[str]:
    return sorted(names, key=lambda name: (len(name), name))


def _list(names: Iterable[object]) -> str:
    ordered = sorted((str(name) for name in names), key=lambda name: (len(name), name))
    return ", ".join(ordered[:16]) + (f" and {len(ordered) - 16} more" if len(ordered) > 16 else "")
