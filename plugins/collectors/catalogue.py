"""The catalogue of all metrics that the built-in collectors send: one JSON file that docs, tests and dashboards use."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec


class Metric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One metric: `type` is gauge, count or rate; `no_data` what is sent when there is nothing to tell from."""

    name: str
    collector: str
    type: str
    unit: str
    meaning: str
    no_data: str = "not sent"
    tags: tuple[str, ...] = ()


@cache
def metrics() -> tuple[Metric, ...]:
    """All metrics, in the order of the file."""
    return msgspec.json.decode(files(__package__).joinpath("metrics.json").read_bytes(), type=tuple[Metric, ...])


@cache
def units() -> dict[str, str]:
    """The unit of each metric by name."""
    return {metric.name: metric.unit for metric in metrics()}
