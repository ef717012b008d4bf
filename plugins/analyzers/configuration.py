"""Numbers of a run's configuration, as trackers keep it in the evidence of a workload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def numbers_in_configuration(evidence: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[float]:
    """Yield the finite numbers that the configurations give under any of `names`."""
    for record in evidence:
        facts = record.get("facts")
        if not isinstance(facts, Mapping):
            continue
        for place in (facts, facts.get("wandb")):
            config = place.get("config") if isinstance(place, Mapping) else None
            if isinstance(config, Mapping):
                yield from (found for name in names if (found := _number(config.get(name))) is not None)


def _number(value: object) -> float | None:
    """Some trackers keep all values as texts."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
