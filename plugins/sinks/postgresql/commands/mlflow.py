"""Runs of MLflow: its database (SQLite or PostgreSQL) or its folder `mlruns`. A run is a workload under its id."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import yaml

from lens_core import SHOWN_NAME_LABEL, LensError, Origin, Record, StepMetrics

# MLflow stores infinities as the largest double.
_LARGEST = 1.7976931348623157e308
_ROWS = (
    "select m.run_uuid, coalesce(r.name, ''), m.step, m.timestamp, m.key, m.value, m.is_nan"
    " from metrics m join runs r on r.run_uuid = m.run_uuid order by m.run_uuid, m.step, m.timestamp, m.key"
)


class _Point(NamedTuple):
    run_id: str
    name: str
    step: int
    timestamp_ms: int
    key: str
    value: float


def read_mlflow(where: str) -> Iterator[Record]:
    """Rows of all runs; `where` is a folder, an SQLite file (also `sqlite:///FILE`) or a PostgreSQL URL."""
    if where.startswith(("postgresql", "postgres")):
        points = _of_postgres(where.replace("postgresql+psycopg2", "postgresql", 1))
    else:
        path = Path(where.removeprefix("sqlite:///"))
        if not path.exists():
            raise LensError(f"{path} does not exist")
        points = _of_folder(path) if path.is_dir() else _of_sqlite(path)
    yield from rows_of(points)


def rows_of(points: Iterable[_Point]) -> Iterator[StepMetrics]:
    """One row for each step; a metric that was logged twice at a step makes a later version of it."""
    for (run_id, name, step), group in groupby(points, lambda p: (p.run_id, p.name, p.step)):
        versions: list[tuple[int, dict[str, float]]] = []
        for point in group:
            place = next((v for v in versions if point.key not in v[1]), None)
            if place is None:
                place = (point.timestamp_ms, {})
                versions.append(place)
            place[1][point.key] = point.value
        origin = Origin(workload_uid=run_id, labels={SHOWN_NAME_LABEL: name} if name else {})
        for number, (timestamp_ms, values) in enumerate(versions):
            yield StepMetrics(
                origin=origin,
                data_source="mlflow",
                run_id=run_id,
                row_step=step,
                event_time=timestamp_ms / 1000,
                sequence=timestamp_ms * 1000 + number,
                values=values,
            )


def _of_postgres(url: str) -> Iterator[_Point]:
    try:
        with psycopg.connect(url) as connection, connection.cursor(name="metrics") as cursor:
            cursor.itersize = 10_000
            cursor.execute(_ROWS.encode())
            yield from map(_point, cursor)
    except psycopg.Error as error:
        said = error.diag.message_primary or type(error).__name__
        raise LensError(f"MLflow's database cannot be read: {said}") from None


def _of_sqlite(path: Path) -> Iterator[_Point]:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    try:
        yield from map(_point, connection.execute(_ROWS))
    except sqlite3.Error as error:
        raise LensError(f"{path} is no database of MLflow: {error}") from None
    finally:
        connection.close()


def _point(row: tuple[Any, ...]) -> _Point:
    run_id, name, step, timestamp_ms, key, value, is_nan = row
    number = float(value)
    if is_nan:
        number = math.nan
    elif abs(number) >= _LARGEST:
        number = math.copysign(math.inf, number)
    return _Point(run_id, name, int(step), int(timestamp_ms), key, number)


def _of_folder(folder: Path) -> Iterator[_Point]:
    """`EXPERIMENT/RUN/metrics/KEY`, each line "timestamp value step"; a key with slashes is a path."""
    for description in sorted(folder.glob("*/*/meta.yaml")):
        run = description.parent
        if not (run / "metrics").is_dir():
            continue
        known = yaml.safe_load(description.read_text()) or {}
        run_id, name = str(known.get("run_id") or run.name), str(known.get("run_name") or "")
        points = []
        for file in sorted(path for path in (run / "metrics").rglob("*") if path.is_file()):
            key = file.relative_to(run / "metrics").as_posix()
            for number, line in enumerate(file.read_text().splitlines(), 1):
                points.append(_parse_point(run_id, name, key, line, f"{file}, line {number}"))
        yield from sorted(points, key=lambda point: (point.step, point.timestamp_ms, point.key))


def _parse_point(run_id: str, name: str, key: str, line: str, place: str) -> _Point:
    try:
        timestamp, value, *step = line.split(" ")
        return _Point(run_id, name, int(step[0]) if step else 0, int(timestamp), key, float(value))
    except ValueError:
        raise LensError(f"{place} is no metric of MLflow") from None
