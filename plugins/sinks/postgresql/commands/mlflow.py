"""Runs of MLflow: its database (SQLite or PostgreSQL) or its folder `mlruns`, as the collector describes them."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import yaml

from lens_core import LensError, Origin, Record, StepMetrics

from ....collectors.mlflow.api import Pair, Run, RunData, RunInfo
from ....collectors.mlflow.facts import ENDED, end_of, evidence_of, origin_of, start_of
from ....collectors.mlflow.rows import SYSTEM_PREFIX, Value, rows_of_values

# MLflow stores infinities as the largest double.
_LARGEST = 1.7976931348623157e308
# Statuses as the files of a folder have them.
_STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_ACTIVE = "active"
_RUNS = """
    select r.run_uuid, r.name, r.experiment_id, r.user_id, r.status, r.start_time, r.end_time, e.name
    from runs r left join experiments e on e.experiment_id = r.experiment_id
    where r.lifecycle_stage = 'active'
    order by r.run_uuid
"""
# Values of a metric that never had a step (MLflow says 0) are counted, as by the hook and the collector.
_POINTS = """
    select case when p.farthest = 0 then p.place - 1 else p.step end as step, p.timestamp, p.key, p.value, p.is_nan
    from (
        select m.*, max(abs(m.step)) over (partition by m.key) as farthest,
            row_number() over (partition by m.key order by m.timestamp, m.value) as place
        from metrics m where m.run_uuid = :run
    ) p
    order by 1, p.timestamp, p.key, p.value
"""
_PARAMS = "select key, value from params where run_uuid = :run order by key"
_TAGS = "select key, value from tags where run_uuid = :run order by key"

Ask = Callable[[str, str], Iterable[Sequence[Any]]]


class _Point(NamedTuple):
    step: int
    timestamp_ms: int
    key: str
    value: float


def read_mlflow(where: str) -> Iterator[Record]:
    """All runs, one after the other; `where` is a folder, an SQLite file (also `sqlite:///FILE`) or a PostgreSQL URL.

    Deleted runs are left out.
    """
    if where.startswith(("postgresql", "postgres")):
        return _of_postgres(where.replace("postgresql+psycopg2", "postgresql", 1))
    path = Path(where.removeprefix("sqlite:///"))
    if not path.exists():
        raise LensError(f"{path} does not exist")
    return _of_folder(path) if path.is_dir() else _of_sqlite(path)


def records_of_run(run: Run, experiment: str, points: Iterable[_Point]) -> Iterator[Record]:
    """The start of a run, its facts, its rows and its end, where it has ended; nothing of a run without rows."""
    origin = origin_of(run, experiment)
    rows = rows_of(points, origin, run.info.run_id)
    if (first := next(rows, None)) is None:
        return
    yield start_of(run, origin)
    yield evidence_of(run, experiment, origin)
    yield first
    yield from rows
    if run.info.status in ENDED:
        yield end_of(run, origin)


def rows_of(points: Iterable[_Point], origin: Origin, run_id: str) -> Iterator[StepMetrics]:
    """The rows of each step, the same as the collector's: one for each time at which values of it were logged."""
    wanted = (point for point in points if not point.key.startswith(SYSTEM_PREFIX))
    for _, group in groupby(wanted, lambda point: point.step):
        seen: Counter[tuple[str, int]] = Counter()
        values = []
        for point in group:
            place = (point.key, point.timestamp_ms)
            values.append(Value(point.key, point.step, point.timestamp_ms, seen[place], point.value))
            seen[place] += 1
        yield from rows_of_values(origin, run_id, values)


def _of_postgres(url: str) -> Iterator[Record]:
    try:
        with psycopg.connect(url) as connection:

            def ask_database(question: str, run_id: str) -> Iterator[Sequence[Any]]:
                with connection.cursor(name="history") as cursor:
                    cursor.itersize = 10_000
                    cursor.execute(question.replace(":run", "%(run)s").encode(), {"run": run_id})
                    yield from cursor

            yield from _of_database(ask_database)
    except psycopg.Error as error:
        said = error.diag.message_primary or type(error).__name__
        raise LensError(f"MLflow's database cannot be read: {said}") from None


def _of_sqlite(path: Path) -> Iterator[Record]:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
    with contextlib.closing(connection):
        try:
            yield from _of_database(lambda question, run_id: connection.execute(question, {"run": run_id}))
        except sqlite3.Error as error:
            raise LensError(f"{path} is no database of MLflow: {error}") from None


def _of_database(ask_database: Ask) -> Iterator[Record]:
    for run_id, name, experiment_id, user, status, start, end, experiment in list(ask_database(_RUNS, "")):
        info = RunInfo(run_id, str(experiment_id), name or "", user or "", status or "", start, end)
        params, tags = (
            [Pair(key, value or "") for key, value in ask_database(question, run_id)] for question in (_PARAMS, _TAGS)
        )
        run = Run(info, RunData(params=params, tags=tags))
        yield from records_of_run(run, experiment or "", map(_point, ask_database(_POINTS, run_id)))


def _point(row: Sequence[Any]) -> _Point:
    step, timestamp_ms, key, value, is_nan = row
    number = float(value)
    if is_nan:
        number = math.nan
    elif abs(number) >= _LARGEST:
        number = math.copysign(math.inf, number)
    return _Point(int(step), int(timestamp_ms), key, number)


def _of_folder(folder: Path) -> Iterator[Record]:
    """`EXPERIMENT/RUN/meta.yaml`, and below the run `metrics`, `params` and `tags`."""
    names: dict[Path, str] = {}
    for description in sorted(folder.glob("*/*/meta.yaml")):
        folder_of_run = description.parent
        known = _description(description)
        if not known.get("run_id") and not (folder_of_run / "metrics").is_dir():
            continue  # a logged model or a trace
        if known.get("lifecycle_stage", _ACTIVE) != _ACTIVE:
            continue
        experiment = folder_of_run.parent
        if experiment not in names:
            names[experiment] = str(_description(experiment / "meta.yaml").get("name") or "")
        run = _run_of_folder(folder_of_run, known)
        yield from records_of_run(run, names[experiment], _points_of_folder(folder_of_run / "metrics"))


def _description(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text()) if path.is_file() else None
    return found if isinstance(found, dict) else {}


def _run_of_folder(folder: Path, known: dict[str, Any]) -> Run:
    status = known.get("status")
    info = RunInfo(
        str(known.get("run_id") or folder.name),
        str(known.get("experiment_id") or folder.parent.name),
        str(known.get("run_name") or ""),
        str(known.get("user_id") or ""),
        _STATUSES.get(status, "") if isinstance(status, int) else str(status or ""),
        known.get("start_time"),
        known.get("end_time"),
    )
    return Run(info, RunData(params=_pairs_of_folder(folder / "params"), tags=_pairs_of_folder(folder / "tags")))


def _pairs_of_folder(folder: Path) -> list[Pair]:
    return [Pair(key, path.read_text(errors="replace")) for key, path in _files_below(folder)]


def _files_below(folder: Path) -> list[tuple[str, Path]]:
    """The files below a folder by key; one with slashes is a path."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(path.relative_to(folder).as_posix(), path) for path in found]


def _points_of_folder(folder: Path) -> list[_Point]:
    """Each file of a metric has lines "timestamp value step"."""
    points: list[_Point] = []
    for key, file in _files_below(folder):
        lines = enumerate(file.read_text().splitlines(), 1)
        points += _counted([_parse_point(key, line, f"{file}, line {number}") for number, line in lines])
    return sorted(points, key=lambda point: (point.step, point.timestamp_ms, point.key))


def _counted(points: list[_Point]) -> list[_Point]:
    """The values of a metric; those of one that never had a step are counted."""
    if any(point.step for point in points):
        return points
    return [point._replace(step=place) for place, point in enumerate(points)]


def _parse_point(key: str, line: str, place: str) -> _Point:
    try:
        timestamp, value, *step = line.split(" ")
        return _Point(int(step[0]) if step else 0, int(timestamp), key, float(value))
    except ValueError:
        raise LensError(f"{place} is no metric of MLflow") from None
