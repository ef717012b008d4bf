"""The output of `lens collect`: lines for people, one JSON object for each collector for programs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
import msgspec

from ..base.redaction import hide
from ..model.records import Measurement


class Answer(msgspec.Struct, kw_only=True):
    """The result of one run."""

    collector: str
    duration_seconds: float = 0.0
    measurements: list[Measurement] = []
    records: Counter[str] = msgspec.field(default_factory=Counter)
    errors: list[str] = []
    up: bool = True
    configuration: bool = False
    pushed: bool = False


def as_object(answer: Answer) -> dict[str, Any]:
    """The answer in the shape that the contract gives it (section 7)."""
    return {
        "collector": answer.collector,
        "up": answer.up,
        "duration_seconds": round(answer.duration_seconds, 3),
        "measurements": [
            {
                "name": found.name,
                "value": _json_number(found.value),
                "kind": found.kind,
                "unit": found.unit,
                "tags": found.tags,
            }
            for found in answer.measurements
        ],
        "records": dict(answer.records),
        "pushed": answer.pushed,
        "errors": answer.errors,
    }


def _json_number(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinities; they are texts as everywhere in Lens."""
    if value is None or value - value == 0:
        return value
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def print_answer(answer: Answer, *, as_json: bool, verbose: bool) -> None:
    """Metrics on standard output, unless that has the JSON; how it went on standard error."""
    if not as_json:
        for found in sorted(answer.measurements, key=lambda found: (found.name, sorted(found.tags.items()))):
            if found.value is not None or verbose:
                click.echo(_measurement_line(found))
    others = {kind: count for kind, count in answer.records.items() if kind != "measurement"}
    parts = [f"{len(answer.measurements)} metrics"] if answer.measurements or not others else []
    parts += [f"{count} {kind}" for kind, count in sorted(others.items())]
    state = "sent" if answer.pushed else ("collected" if answer.up else "failed")
    click.echo(f"{answer.collector}: {state} {', '.join(parts)} in {answer.duration_seconds:.1f} s", err=True)
    for error in answer.errors:
        click.echo(hide(f"{answer.collector}: {error}"), err=True)


def _measurement_line(found: Measurement) -> str:
    value = "no data" if found.value is None else f"{found.value:.6g}"
    tags = ",".join(f"{name}={text}" for name, text in sorted(found.tags.items()))
    return f"{found.name}{'{' + tags + '}' if tags else ''}: {value} {found.unit}".rstrip()
