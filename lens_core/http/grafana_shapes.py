"""Points in the shapes that Grafana's data sources take: time series, tables, frames, wide rows. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..model.queries import EventRow, PointColumns
from .point_json import json_value


class Line(NamedTuple):
    """One line of a chart: a metric of an attempt of a run of a source, in the order of time."""

    metric_name: str
    data_source: str
    run_id: str
    attempt: int
    times: list[int]
    values: list[float | None]
    iterations: list[int]

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels that distinguish it from others."""
        return {"data_source": self.data_source, "run_id": self.run_id, "attempt": str(self.attempt)}


def lines_of(pieces: Iterable[PointColumns]) -> list[Line]:
    """Pieces put together line by line."""
    points: dict[tuple[str, str, str, int], list[tuple[int, int, float]]] = {}
    for piece in pieces:
        key = (piece.metric_name, piece.data_source, piece.run_id, piece.attempt)
        points.setdefault(key, []).extend(zip(piece.timestamps, piece.iterations, piece.values, strict=True))
    lines = []
    for key, found in points.items():
        found.sort(key=lambda point: point[:2])
        times, iterations, values = ([point[place] for point in found] for place in range(3))
        lines.append(Line(*key, [int(time) for time in times], [json_value(v) for v in values], iterations))  # type: ignore[arg-type]
    return lines


def title(line: Line, lines: Sequence[Line]) -> str:
    """The line's name in a legend: what it shares with all others is left out."""
    parts = [line.metric_name]
    if len({other.run_id for other in lines}) > 1:
        parts.append(f"run {line.run_id}")
    if len({other.attempt for other in lines}) > 1:
        parts.append(f"attempt {line.attempt}")
    if len({other.data_source for other in lines}) > 1:
        parts.append(line.data_source)
    return ", ".join(parts)


def series(lines: Sequence[Line], ref_id: str) -> list[dict[str, Any]]:
    """`{target, refId, datapoints: [[value, milliseconds]]}` for each line."""
    return [
        {
            "target": title(line, lines),
            "refId": ref_id,
            "datapoints": [[value, time] for value, time in zip(line.values, line.times, strict=True)],
        }
        for line in lines
    ]


def frames(lines: Sequence[Line], ref_id: str) -> list[dict[str, Any]]:
    """A data frame for each line, with its labels."""
    return [
        {
            "name": title(line, lines),
            "refId": ref_id,
            "fields": [
                {"name": "time", "type": "time", "values": line.times},
                {"name": line.metric_name, "type": "number", "values": line.values, "labels": line.labels},
                {"name": "iteration", "type": "number", "values": line.iterations},
            ],
        }
        for line in lines
    ]


def table(lines: Sequence[Line], ref_id: str) -> dict[str, Any]:
    """One table: time, iteration, run, attempt, source and a column for each metric."""
    metrics = list(dict.fromkeys(line.metric_name for line in lines))
    heads = [("Time", "time"), ("iteration", "number"), ("run_id", "string"), ("attempt", "number")]
    heads += [("data_source", "string"), *((metric, "number") for metric in metrics)]
    names = ("time", "iteration", "run_id", "attempt", "data_source", *metrics)
    return {
        "type": "table",
        "refId": ref_id,
        "columns": [{"text": text, "type": kind} for text, kind in heads],
        "rows": [[row.get(name) for name in names] for row in wide_rows(lines)],
    }


def wide_rows(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One row for each iteration of a run's attempt: `{time, iteration, run_id, attempt, data_source, loss, …}`.

    A metric that is called like one of the first five is left out of rows. In the order of time.
    """
    rows: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for line in lines:
        for time, iteration, value in zip(line.times, line.iterations, line.values, strict=True):
            key = (line.data_source, line.run_id, line.attempt, iteration)
            row = rows.get(key)
            if row is None:
                row = rows[key] = {
                    "time": time,
                    "iteration": iteration,
                    "run_id": line.run_id,
                    "attempt": line.attempt,
                    "data_source": line.data_source,
                }
            row.setdefault(line.metric_name, value)
    return sorted(rows.values(), key=lambda row: (row["time"], row["iteration"]))


def events_as_annotations(events: Sequence[EventRow], start_ms: int | None, end_ms: int | None) -> list[dict[str, Any]]:
    """Events within a range as annotations, oldest first."""
    found = []
    for event in events:
        if (start_ms is None or event.timestamp >= start_ms) and (end_ms is None or event.timestamp <= end_ms):
            at = "" if event.iteration is None else f"iteration {event.iteration}"
            rank = "" if event.rank is None else f"rank {event.rank}"
            details = ", ".join(f"{name}: {value}" for name, value in event.details.items())
            found.append(
                {
                    "time": event.timestamp,
                    "title": event.type,
                    "text": "; ".join(part for part in (at, rank, event.pod_name, event.node, details[:500]) if part),
                    "tags": [event.type, *([event.data_source] if event.data_source else [])],
                }
            )
    return sorted(found, key=lambda annotation: annotation["time"])
