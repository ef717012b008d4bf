"""Compares the stacks of ranks, and finds the odd one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..base.errors import LensError
from ..model.records import Diagnosis
from .facts import Facts, Finding, Limits
from .stacks import RankStack, decode_report, own_frames, split_frame
from .wording import by_node, node_name, ranks_of, verb

_COLLECTIVE = re.compile(
    r"barrier|all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all|ncclGroup|ncclKernel|nccl|gloo"
    r"|ProcessGroup|c10d|MPI_|hvd_|synchronize|wait_tensor|monitored_barrier|clip_grad_norm",
    re.IGNORECASE,
)
_LOOKED_AT = 8


class StackGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks with equal stacks; `is_suspect` when the others seem to wait for them."""

    ranks: list[str]
    frames: list[str]
    waits_for_others: bool
    is_suspect: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the group as the diagnosis route and `lens diagnose` show it."""
        return {
            "ranks": self.ranks,
            "suspect": self.is_suspect,
            "waits_for_others": self.waits_for_others,
            "frames": self.frames,
        }


def merge_stacks(ranks: Iterable[RankStack]) -> list[StackGroup]:
    """The groups of equal stacks: suspects first, then the smaller ones."""
    by_place: dict[tuple[str, ...], list[RankStack]] = defaultdict(list)
    for rank in ranks:
        if rank.frames:
            by_place[own_frames(rank.frames)].append(rank)
    groups = [_make_group(members) for members in by_place.values()]
    suspects = {id(group) for group in _odd_ones(groups)}
    marked = [msgspec.structs.replace(group, is_suspect=id(group) in suspects) for group in groups]
    return sorted(marked, key=lambda group: (not group.is_suspect, len(group.ranks), group.ranks))


def suspects_of(groups: Sequence[StackGroup]) -> list[str]:
    """The ranks for which the others seem to wait."""
    return [rank for group in groups if group.is_suspect for rank in group.ranks]


def waits_for_others(frames: Sequence[str]) -> bool:
    """Whether a stack stands in a collective operation."""
    for frame in frames[:_LOOKED_AT]:
        function, file, _ = split_frame(frame)
        if _COLLECTIVE.search(function) or "torch/distributed/" in file or "libnccl" in file or "librccl" in file:
            return True
    return False


def telling_frame(group: StackGroup) -> str:
    """The one frame that says most: the collective's, else the innermost one of the training's own."""
    if group.waits_for_others:
        for frame in group.frames[:_LOOKED_AT]:
            if _COLLECTIVE.search(split_frame(frame)[0]):
                return frame
    return own_frames(tuple(group.frames))[0]


def _make_group(members: Sequence[RankStack]) -> StackGroup:
    ordered = sorted(members, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.pid))
    # Of equal stacks the one with native frames says most.
    fullest = max(ordered, key=lambda rank: (rank.is_native, len(rank.frames)))
    waiting = any(waits_for_others(member.frames) for member in ordered)
    return StackGroup(
        ranks=[rank.name for rank in ordered], frames=list(fullest.frames), waits_for_others=waiting, is_suspect=False
    )


def _odd_ones(groups: Sequence[StackGroup]) -> list[StackGroup]:
    """Return the ranks that are outside a collective while others are in it; else a minority of the ranks."""
    if len(groups) < 2:
        return []
    elsewhere = [group for group in groups if not group.waits_for_others]
    if elsewhere and len(elsewhere) < len(groups):
        return elsewhere
    total = sum(len(group.ranks) for group in groups)
    largest = max(len(group.ranks) for group in groups)
    if largest * 2 <= total:
        return []
    return [group for group in groups if len(group.ranks) < largest]


# More of a core than this is computing (or a collective that spins while it waits).
_BUSY_CPU = 0.5


class _RankState(NamedTuple):
    rank: RankStack
    state: str
    since: float
    is_busy: bool = False


def stack_rule(facts: Facts, limits: Limits) -> Finding | None:
    """Every rank stands where it stood, its loop's variables too: yes; all move: no; else unknown."""
    nodes = by_node(facts, "STACK_TRACE", limits)
    if not nodes:
        return None
    states: dict[str, _RankState] = {}
    silent: list[str] = []
    for node, reports in nodes.items():
        if facts.now - reports[-1].timestamp > limits.stack_fresh_seconds:
            silent.append(f"node {node_name(node)} is silent")
        else:
            states.update(_rank_states(reports, limits))
    world = max((state.rank.world_size or 0 for state in states.values()), default=0)
    known = {state.rank.rank for state in states.values() if state.rank.rank is not None}
    missing = [rank for rank in range(world) if rank not in known] if known and world > len(known) else []
    # Every rank must have stood for a while, and one of them, the one that is watched, for the whole time.
    now = max((reports[-1].timestamp for reports in nodes.values()), default=0.0)
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
        reason = f"stacks: {ranks_of(moving)} {verb(moving, 'move')}"
        return Finding(rule="stacks", verdict="no", reason=reason)
    groups = merge_stacks(state.rank for state in states.values())
    suspects = suspects_of(groups) or (moving if still and moving else [])
    place = _places(groups)
    if still and len(still) == len(states) and not silent and not missing:
        since = max(state.since for state in still.values())
        has_marks = any(state.rank.mark for state in still.values())
        reason = f"stacks: {'all ' if len(still) > 1 else ''}{ranks_of(still)} {verb(still, 'stand')} still{place}"
        # One long call into C (an index that is built, a decomposition) looks like this too.
        computing = [name for name, state in still.items() if state.is_busy and not waits_for_others(state.rank.frames)]
        if computing:
            reason = f"{reason}, but {ranks_of(computing)} {verb(computing, 'compute')}"
            return Finding(rule="stacks", verdict="unknown", reason=reason, ranks=suspects)
        if has_marks:
            return Finding(rule="stacks", verdict="yes", reason=reason, since=since, ranks=suspects)
        weak = f"{reason}, but no local variables say whether it is one and the same step"
        return Finding(rule="stacks", verdict="unknown", reason=weak, since=since, ranks=suspects)
    ended = [name for name, state in states.items() if state.state == "ended"]
    if ended and still and len(ended) + len(still) == len(states) and not silent and not missing:
        reason = (
            f"stacks: the process of {ranks_of(ended)} is gone, {ranks_of(still)} {verb(still, 'stand')} still{place}"
        )
        since = max(state.since for state in still.values())
        return Finding(rule="stacks", verdict="yes", reason=reason, since=since, ranks=ended)
    parts = [*silent, *([f"{ranks_of(missing)} report nothing"] if missing else [])]
    if still:
        parts.insert(0, f"{ranks_of(still)} {verb(still, 'stand')} still{place}")
    if moving:
        parts.append(f"{ranks_of(moving)} {verb(moving, 'move')}")
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


def _places(groups: Iterable[StackGroup]) -> str:
    texts = [f"{ranks_of(group.ranks)} in {telling_frame(group)}" for group in groups]
    return f": {', '.join(texts[:4])}" if texts else ""
