"""Finds the rank that others wait for by stacks of all ranks of a node at one instant: it is outside of collectives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from lens_core import Diagnosis
from lens_core.plugin_api.diagnosis import RankStack, StackReport, own_frames

from .verdict import Layout, Verdict

DATA_TYPE = "STACK_TRACE"
_LEAST_SAMPLES = 5
_LEAST_SHARE = 0.6
_MOST_OF_OTHERS = 0.3
# Places where ranks wait for each other: collectives, barriers, and the calls in which the device is waited for.
_WAITING = re.compile(
    r"^(?:_?all_?(?:reduce|gather|to_all)\w*|_?reduce_?scatter\w*|_?broadcast\w*|barrier|wait|_?synchronize\w*"
    r"|nccl\w*|backward|_engine_run_backward|item|recv|irecv|send_recv\w*|monitored_barrier)\b",
    re.IGNORECASE,
)
_INNER_FRAMES = 6


def judge_stacks(reports: Sequence[Diagnosis], layout: Layout) -> Verdict | None:
    """Judge the samples in which several ranks were looked at at once; None where there are fewer than five."""
    samples = Counter[int]()
    outside: Counter[int] = Counter()
    places: dict[int, Counter[str]] = {}
    for report in reports:
        ranks = [one for one in _ranks_of(report.data_content) if one.rank is not None and one.frames]
        out = [one for one in ranks if not _is_waiting(one)]
        if len(ranks) < 3 or 2 * len(out) >= len(ranks):
            continue  # most do not wait: nobody is waited for
        samples.update(one.rank for one in ranks if one.rank is not None)
        for one in out:
            assert one.rank is not None
            outside[one.rank] += 1
            places.setdefault(one.rank, Counter())[own_frames(one.frames)[0]] += 1
    shares = {rank: outside[rank] / count for rank, count in samples.items() if count >= _LEAST_SAMPLES}
    if not shares:
        return None
    rank = max(shares, key=lambda one: shares[one])
    others = [share for one, share in shares.items() if one != rank]
    if shares[rank] < _LEAST_SHARE or max(others, default=0.0) > _MOST_OF_OTHERS:
        return Verdict(kind="none", windows=max(samples.values()))
    return Verdict(
        kind="straggler",
        ranks=[rank],
        node=layout.node.get(rank, ""),
        score=shares[rank],
        rule="outside of collectives in most stacks in which the other ranks wait in one",
        windows=samples[rank],
        cause=f"it is in {places[rank].most_common(1)[0][0]}",
    )


def _is_waiting(rank: RankStack) -> bool:
    return any(_WAITING.match(frame.rpartition("::")[2]) for frame in rank.frames[:_INNER_FRAMES])


def _ranks_of(text: str) -> Sequence[RankStack]:
    try:
        return msgspec.json.decode(text, type=StackReport).ranks
    except (msgspec.DecodeError, RecursionError):
        return ()
