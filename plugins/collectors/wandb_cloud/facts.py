"""From a run as W&B's listing gives it to what the metrics need; whatever is odd costs a value, never the run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

_FRACTION = re.compile(r"\.(\d+)")
# What a double-encoded object is unpacked; W&B's own clients and servers encode once or twice.
_MAX_DECODINGS = 2


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One run; times in seconds since the epoch, None when W&B does not say. `gpus` None: unknown."""

    id: str
    name: str
    state: str
    created: float | None
    heartbeat: float | None
    in_sweep: bool
    gpus: float | None
    summary: Any = None


def read_run(node: Mapping[str, Any], gpus_config_key: str = "") -> RunFacts:
    """A node of the listing. A run without a display name goes by its id."""
    run_id = str(node.get("name") or "")
    return RunFacts(
        id=run_id,
        name=str(node.get("displayName") or run_id),
        state=str(node.get("state") or "").lower(),
        created=read_time(node.get("createdAt")),
        heartbeat=read_time(node.get("heartbeatAt")),
        in_sweep=bool(node.get("sweepName")),
        gpus=_gpus(node, gpus_config_key),
        summary=node.get("summaryMetrics"),
    )


def read_time(text: Any) -> float | None:
    """An ISO time in seconds since the epoch, UTC where it names no zone; None when it is none."""
    if not isinstance(text, str) or not text:
        return None
    # Python 3.10 reads fractions of three or six digits only, and no Z.
    plain = _FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), text.strip()).replace("Z", "+00:00")
    try:
        time = datetime.fromisoformat(plain)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()


def read_object(value: Any) -> Mapping[str, Any]:
    """A summary or a configuration: an object, JSON text (even twice encoded), nothing, or broken: then empty."""
    for _ in range(_MAX_DECODINGS):
        if not isinstance(value, (str, bytes, bytearray)):
            break
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def read_number(value: Any) -> float | None:
    """A finite number, else None: booleans, texts ("NaN" among them) and objects are no values of a gauge."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _gpus(node: Mapping[str, Any], config_key: str) -> float | None:
    config = read_object(node.get("config"))
    if config_key:
        number = read_number(_setting(config, config_key))
        if number is not None and number >= 0:
            return number
    return _gpus_of_metadata(config)


def _setting(config: Mapping[str, Any], key: str) -> Any:
    """A key of a run's configuration, nested ones with dots; W&B wraps the first level as {"value": …}."""
    if key in config:
        return _unwrapped(config[key])
    first, *rest = key.split(".")
    value = _unwrapped(config.get(first))
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _unwrapped(value: Any) -> Any:
    return value["value"] if isinstance(value, Mapping) and "value" in value else value


def _gpus_of_metadata(config: Mapping[str, Any]) -> float | None:
    """The GPUs of the machines that wrote the run: `_wandb.e`, one entry per process that did, one count per host."""
    internal = _unwrapped(config.get("_wandb"))
    writers = internal.get("e") if isinstance(internal, Mapping) else None
    if not isinstance(writers, Mapping):
        return None
    per_host: dict[str, float] = {}
    for writer in writers.values():
        if not isinstance(writer, Mapping):
            continue
        number = read_number(writer.get("gpu_count"))
        if number:
            host = str(writer.get("host") or "")
            per_host[host] = max(per_host.get(host, 0.0), number)
    return sum(per_host.values()) if per_host else None
