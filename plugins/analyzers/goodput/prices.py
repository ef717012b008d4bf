"""Money beside GPU-hours, where somebody gave the price of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HOUR = 3600.0


def with_prices(answer: Mapping[str, Any], price: float | None) -> dict[str, Any]:
    """The answer about a run or about all jobs, with money wherever it has GPU-hours that are known.

    `price_per_gpu_hour`; `cost` of an interruption or group; `costs` of each bucket. Without a price nothing is added.
    """
    if price is None:
        return dict(answer)
    priced = {**answer, "price_per_gpu_hour": price}
    for name in ("interruptions", "groups", "nodes", "at_risk"):
        if name in priced:
            priced[name] = [_with_price(one, price) for one in priced[name]]
    return _with_costs(priced, price)


def _with_price(found: Mapping[str, Any], price: float) -> dict[str, Any]:
    if "gpu_hours" in found:
        hours = found["gpu_hours"]
        return {**found, "cost": None if hours is None else round(hours * price, 2)}
    return _with_costs(dict(found), price)


def _with_costs(found: dict[str, Any], price: float) -> dict[str, Any]:
    seconds = found.get("gpu_seconds")
    if isinstance(seconds, Mapping):
        found["costs"] = {name: round(amount / _HOUR * price, 2) for name, amount in seconds.items()}
    elif isinstance(seconds, int | float):
        found["cost"] = round(seconds / _HOUR * price, 2)
    return found
