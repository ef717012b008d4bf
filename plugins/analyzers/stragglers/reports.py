"""Judges what a log itself says of its ranks: Megatron's smallest and largest figures, and the warnings of NVRx."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lens_core import EventRow

from .verdict import WINDOWS, Layout, Verdict, name_ranks

_NEEDED = 3
# The smallest and the largest of all ranks are known, not the median: so the limit of few ranks holds.
_LEAST_RATIO = 1.20
_INPUT_SHARE = 0.80
_NAMED_RANKS, _BARE_RANKS = re.compile(r"\b[Rr]ank=(\d+)"), re.compile(r"(?<![\w.=-])(\d+)(?![\w.])")


def judge_reports(events: Sequence[EventRow], layout: Layout) -> Verdict | None:
    """Judge the newest five reports of ranks, the oldest first; None where there are fewer than three."""
    reports = [event.details for event in events if event.type == "rank_report"]
    spreads = [found for found in reports if "compute_ms_max" in found][-WINDOWS:]
    warnings = [found for found in reports if found.get("slow_ranks")][-WINDOWS:]
    found = _of_spreads(spreads, layout)
    if found is not None and found.kind != "none":
        return found
    return _of_warnings(warnings, layout) or found


def _of_spreads(reports: Sequence[Mapping[str, Any]], layout: Layout) -> Verdict | None:
    """The rank that has the largest time of its own in three of five reports, and is far above the smallest."""
    figures = [
        (int(one["compute_ms_max_rank"]), one["compute_ms_max"] / one["compute_ms_min"], one)
        for one in reports
        if _are_numbers(one, "compute_ms_max", "compute_ms_min", "compute_ms_max_rank") and one["compute_ms_min"] > 0
    ]
    if len(figures) < _NEEDED:
        return None
    slow = [(rank, ratio, one) for rank, ratio, one in figures if ratio >= _LEAST_RATIO]
    counts = Counter(rank for rank, _, _ in slow)
    if not counts or counts.most_common(1)[0][1] < _NEEDED:
        if len(slow) >= _NEEDED:
            return Verdict(kind="uneven_data", windows=len(figures), rule="another rank is slowest in each report")
        return Verdict(kind="none", windows=len(figures))
    rank = counts.most_common(1)[0][0]
    _, ratio, newest = [one for one in slow if one[0] == rank][-1]
    data, excess = newest.get("data_ms_max"), newest["compute_ms_max"] - newest["compute_ms_min"]
    is_input = newest.get("data_ms_max_rank") == rank and isinstance(data, int | float)
    return Verdict(
        kind="input" if is_input and data >= _INPUT_SHARE * excess else "straggler",
        ranks=[rank],
        node=layout.node.get(rank, ""),
        ratio=ratio,
        rule="slowest in three of five of the log's own reports (Megatron), 1.20 of the fastest",
        cost_share=ratio - 1.0,
        windows=len(figures),
        cause="its clock is the lowest" if newest.get("clock_mhz_min_rank") == rank else "",
    )


def _of_warnings(reports: Sequence[Mapping[str, Any]], layout: Layout) -> Verdict | None:
    """The ranks that three of the newest five warnings name, as NVRx judged them by its own limits."""
    named = [_ranks_in(str(found["slow_ranks"])) for found in reports]
    counts = Counter(rank for ranks in named for rank in ranks)
    lasting = {rank for rank, count in counts.items() if count >= _NEEDED}
    if not lasting:
        return None
    found = Verdict(
        kind="straggler",
        ranks=sorted(lasting),
        rule="named in three of five warnings of the log itself (NVRx)",
        windows=len(reports),
    )
    return name_ranks(found, lasting, layout, len(layout.node))


def _ranks_in(text: str) -> set[int]:
    """The ranks of a printed list, of numbers or of objects that have a rank and a node."""
    return set(map(int, _NAMED_RANKS.findall(text) or _BARE_RANKS.findall(text)))


def _are_numbers(found: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(found.get(name), int | float) for name in names)
