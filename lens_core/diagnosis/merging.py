"""Stacks of all ranks, merged: equal ones are one group, and the group that is not where the others are comes first."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from .stacks import RankStack, own_frames, split_frame

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
