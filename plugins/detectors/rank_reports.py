"""Lines in which a framework itself compares its ranks and names some: Megatron's straggler detector, NVRx.

Megatron (`--log-straggler`) prints the smallest and the largest of each figure with its rank, at each logging interval;
NVRx prints the ranks that it finds slow. They name no framework: forks and other loops use both.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, hookimpl


def _pair(printed: str, name: str, unit: str) -> str:
    """One figure's smallest and largest value, each with its rank."""
    return (
        rf"Mn{printed}/Rnk: (?P<{name}_min>[\d.]+){unit}/(?P<{name}_min_rank>\d+) \| "
        rf"Mx{printed}/Rnk: (?P<{name}_max>[\d.]+){unit}/(?P<{name}_max_rank>\d+)"
    )


class RankReports(Detector):
    """Reports that compare ranks; the analyzer of stragglers reads them."""

    name = "rank_reports"
    layer = ""
    events = (
        EventPattern(
            type="rank_report",
            words=("mnrtt", "rnk", "mxrtt"),
            pattern=rf"{_pair('Rtt', 'compute_ms', 'ms')}(?:.{{0,300}}?{_pair('Clk', 'clock_mhz', 'MHz')})?"
            rf"(?:.{{0,100}}?{_pair('DRtt', 'data_ms', 'ms')})?",
            names_framework=False,
        ),
        EventPattern(
            type="rank_report",
            words=("straggler", "detection", "warning", "relative", "ranks"),
            pattern=r"STRAGGLER DETECTION WARNING: Some GPUs have worse (?P<compared>relative) performance\. "
            r"Affected ranks: [\[{](?P<slow_ranks>[^\]}]{1,400})",
            names_framework=False,
        ),
        EventPattern(
            type="rank_report",
            words=("straggler", "detection", "warning", "performance", "dropped", "ranks"),
            pattern=r"STRAGGLER DETECTION WARNING: Some GPUs performance (?P<compared>dropped)\. "
            r"Affected ranks: [\[{](?P<slow_ranks>[^\]}]{1,400})",
            names_framework=False,
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [RankReports]
