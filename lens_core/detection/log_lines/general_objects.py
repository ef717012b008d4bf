"""The numbers of JSON objects and Python dictionaries that a loop prints, for the general reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .general_labels import counter_of
from .numbers import parse_number

# Keys in dictionaries of other jobs: a quantised layer, a trial of a search.
OF_OTHER_JOBS = frozenset(["layer", "module", "tid", "trial", "trial_id", "state", "misc"])


def flatten_object(body: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The numbers of a JSON object by their keys; of `{"name": "loss", "data": {"value": 3}}` the value by its name."""
    named = body.get("name") or body.get("metric") or body.get("tag")
    if isinstance(named, str):
        inner = body.get("data") if isinstance(body.get("data"), dict) else body
        if isinstance(inner, dict) and isinstance(inner.get("value"), int | float):
            yield named, repr(float(inner["value"])), ""
            for key, value in inner.items():
                if counter_of(key) and isinstance(value, int | float) and not isinstance(value, bool):
                    yield key, repr(value), ""
            return
    for key, value in body.items():
        if isinstance(value, dict):
            is_wrapper = not prefix and key in ("data", "metrics", "values", "stats", "log", "logs", "train")
            yield from flatten_object(value, prefix if is_wrapper else f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{key}", repr(value), ""
        elif isinstance(value, str) and len(value) < 40 and parse_number(value) is not None:
            yield f"{prefix}{key}", value, ""


def epochs_of_trainer(pairs: Iterable[tuple[str, str, str]]) -> float | None:
    """The epochs that are done, in a dictionary of a Trainer whose loss has a name of its own."""
    return next((parse_number(number) for name, number, _ in pairs if name == "epoch"), None)
