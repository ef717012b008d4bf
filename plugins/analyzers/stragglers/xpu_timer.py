"""Windows of kernel times by rank out of XPU timer's reports: matrix products are a rank's own, collectives wait.

Only equal work is compared: the same operation, type, size class and transport. So a rank's figure is the median, over
the kernels that most ranks have, of its latency over the median of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from prometheus_client.parser import text_string_to_metric_families

from lens_core import Diagnosis

from .verdict import WINDOWS, Window

DATA_TYPE = "XPU_TIMER_METRIC"
_MATRIX, _COLLECTIVE = "XPU_TIMER_MM_KERNEL_AVG_LATENCY", "XPU_TIMER_COLL_KERNEL_AVG_LATENCY"
# Labels that tell where a kernel ran, not which one it was.
_PLACE = frozenset({"rank", "local_rank", "ip", "pod_name", "job_name"})
_WINDOW_SECONDS = 300.0
_SHARE_OF_RANKS = 0.5
Kernel = tuple[tuple[str, str], ...]


def windows_of_reports(reports: Sequence[Diagnosis]) -> list[Window]:
    """The windows of five minutes, the oldest first; reports of nodes come at times of their own."""
    if not reports:
        return []
    newest = max(report.timestamp for report in reports)
    parts: dict[int, list[Diagnosis]] = {}
    for report in sorted(reports, key=lambda report: report.timestamp):
        parts.setdefault(int((newest - report.timestamp) // _WINDOW_SECONDS), []).append(report)
    windows = []
    for age in sorted((age for age in parts if age <= WINDOWS), reverse=True):
        times: dict[str, dict[Kernel, dict[int, list[float]]]] = {_MATRIX: {}, _COLLECTIVE: {}}
        for report in parts[age]:
            for name, kernel, rank, value in _latencies(report.data_content):
                times[name].setdefault(kernel, {}).setdefault(rank, []).append(value)
        compute, waiting = (_relative(times[name]) for name in (_MATRIX, _COLLECTIVE))
        if compute or waiting:
            windows.append(Window(compute=compute, waiting=waiting))
    return windows


def _relative(kernels: dict[Kernel, dict[int, list[float]]]) -> dict[int, float]:
    """For each rank the median of its times over those of all ranks."""
    every = {rank for ranks in kernels.values() for rank in ranks}
    ratios: dict[int, list[float]] = {}
    for ranks in kernels.values():
        if len(ranks) < max(2, _SHARE_OF_RANKS * len(every)):
            continue
        own = {rank: median(values) for rank, values in ranks.items()}
        centre = median(own.values())
        if centre > 0:
            for rank, value in own.items():
                ratios.setdefault(rank, []).append(value / centre)
    return {rank: median(values) for rank, values in sorted(ratios.items())}


def _latencies(text: str) -> Iterator[tuple[str, Kernel, int, float]]:
    """The latencies of one report: metric, kernel, rank, microseconds; lines that cannot be read are left out."""
    for line in text.splitlines():
        if not line.startswith((_MATRIX, _COLLECTIVE)):
            continue
        try:
            samples = [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
        except (ValueError, IndexError, KeyError):
            continue
        for sample in samples:
            rank = sample.labels.get("rank", "")
            if rank.isascii() and rank.isdigit() and len(rank) <= 9 and 0 < sample.value < float("inf"):
                kernel = tuple(sorted((name, value) for name, value in sample.labels.items() if name not in _PLACE))
                yield sample.name, kernel, int(rank), float(sample.value)
