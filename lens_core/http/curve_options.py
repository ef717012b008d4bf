"""Options of an answer with curves in place of points; apart from what computes them, which needs numpy."""

from __future__ import annotations

from typing import NamedTuple


class CurveOptions(NamedTuple):
    """The most buckets of a curve, the weight of its moving average, and whether each rank has one of its own.

    Without `percentiles` long curves need not be read point by point.
    """

    buckets: int | None = None
    smooth: float | None = None
    by_rank: bool = False
    percentiles: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether the points are answered as the store has them."""
        return self.buckets is None and not self.by_rank

    @property
    def columns(self) -> list[str]:
        """The names of what is answered beside each point."""
        found = ["rank"] if self.by_rank else []
        if self.buckets is not None:
            found += ["min", "max", "last", "steps", "count", "not_finite"]
        return found if self.smooth is None else [*found, "smoothed"]
