"""The collector beside a real `mlflow server` and the real client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.collectors.mlflow import Mlflow, MlflowSettings

from lens_core import Context, Event, Evidence, LensError, Partial, Record, SelfMetrics, StepMetrics
from lens_core.testing.collectors import check_collector
from tests.plugins.collectors.mlflow.tracking_server import RealServer

BEGIN = """
    import math, mlflow
    mlflow.set_experiment("{experiment}")
    client = mlflow.MlflowClient()
    run = mlflow.start_run(run_name="night", tags={{"team": "vision"}}, log_system_metrics=False)
    mlflow.log_params({{"lr": 0.1, "api_key": "sk-1"}})
    for step in range(1, 8):
        mlflow.log_metrics({{"loss": 1 / step, "odd": [math.nan, math.inf, -math.inf, 1e-300][step % 4]}}, step=step)
        mlflow.log_metric("accuracy/top-1: b", step * 10, step=step)
    for value in (5.0, 4.0, 3.0):
        mlflow.log_metric("plain", value)
    with mlflow.start_run(run_name="inner", nested=True) as inner:
        mlflow.log_metric("loss", 9.0, step=3)
    mlflow.log_metric("system/gpu_0_utilization", 50.0, step=0)
    print(run.info.run_id, inner.info.run_id, flush=True)
    import os; os._exit(0)  # still running
"""
GO_ON = """
    import mlflow
    try:
        with mlflow.start_run(run_id="{run_id}"):
            for step in range(5, 11):  # from a checkpoint
                mlflow.log_metrics({{"loss": 100 + step, "new": step}}, step=step)
            {end}
    except ValueError:
        pass
"""


def context(folder: Path) -> Context:
    """The context of a collector that keeps its state in a folder."""
    return Context(name="tracker", logger=logging.getLogger("tests.mlflow"), data_dir=folder, metrics=SelfMetrics())


@contextlib.asynccontextmanager
async def collecting(server: RealServer, folder: Path, **options: Any) -> AsyncIterator[Mlflow]:
    """A started collector."""
    collector = Mlflow(MlflowSettings(url=server.url, **options), context(folder))
    await collector.start()
    try:
        yield collector
    finally:
        await collector.stop()


async def collect_round(collector: Mlflow) -> list[Record]:
    """A whole round, each part of it stored."""
    records: list[Record] = []
    while True:
        found = await collector.collect()
        assert not isinstance(found, Partial), found
        records += found
        await collector.stored()
        if not collector.more:
            return records


async def call_script(server: RealServer, script: str, folder: Path) -> list[str]:
    """The words of the last line that a script with the real client prints."""
    folder.mkdir(exist_ok=True)
    printed = await asyncio.to_thread(server.run_script, script, folder)
    return printed.splitlines()[-1].split() if printed else []


def points_of(records: list[Record], run_id: str) -> Counter[tuple[str, int, str]]:
    """Metric, step and value of a run's rows."""
    return Counter(
        (name, row.row_step, repr(value))
        for row in records
        if isinstance(row, StepMetrics) and row.run_id == run_id
        for name, value in row.values.items()
    )


@pytest.mark.slow("starts a tracking server and its clients")
async def test_a_run_from_its_start_to_its_end(mlflow_server: RealServer, tmp_path: Path) -> None:
    mine = {"experiments": ["first *"], "points_per_page": 10}
    begin = BEGIN.format(experiment="first night")
    run_id, inner_id = await call_script(mlflow_server, begin, tmp_path / "w")
    async with collecting(mlflow_server, tmp_path / "data", **mine) as collector:
        records = await collect_round(collector)
        assert await collect_round(collector) == []
    odd = [math.nan, math.inf, -math.inf, 1e-300]
    expected = Counter(
        [(name, step, repr(value)) for step in range(1, 8) for name, value in values_of(step, odd).items()]
        + [("plain", step, repr(value)) for step, value in enumerate((5.0, 4.0, 3.0))]
    )
    assert points_of(records, run_id) == expected
    assert points_of(records, inner_id) == Counter([("loss", 3, "9.0")])
    facts = {record.run_id: record.facts for record in records if isinstance(record, Evidence)}
    assert facts[inner_id]["tracker"]["parent"] == run_id
    assert facts[run_id]["tracker"]["tags"] == {"team": "vision"}
    assert facts[run_id]["tracker"]["name"] == "night"
    assert facts[run_id]["config"] == {"lr": "0.1", "api_key": "sk-1"}, "the ingest gate hides secrets"
    assert facts[run_id]["tracker"]["url"].startswith(f"{mlflow_server.url}/#/experiments/")
    assert ends_of(records) == [("training_ended", inner_id)]

    await call_script(mlflow_server, GO_ON.format(run_id=run_id, end="raise ValueError('the end')"), tmp_path / "w2")
    async with collecting(mlflow_server, tmp_path / "data", **mine) as collector:
        later = await collect_round(collector)
        again = [(name, step, repr(float(value))) for step in range(5, 11) for name, value in new_of(step).items()]
        assert points_of(later, run_id) == Counter(again)
        assert ends_of(later) == [("training_failed", run_id)]
        assert await collect_round(collector) == []
    # A lost state costs time and changes nothing: the same values under the same keys and sequences.
    async with collecting(mlflow_server, tmp_path / "lost", **mine) as collector:
        assert keyed(await collect_round(collector)) == keyed([*records, *later])


def values_of(step: int, odd: list[float]) -> dict[str, float]:
    """The values that the script logs at a step."""
    return {"loss": 1 / step, "odd": odd[step % 4], "accuracy/top-1: b": step * 10.0}


def new_of(step: int) -> dict[str, float]:
    """The values that the resumed script logs at a step."""
    return {"loss": 100.0 + step, "new": float(step)}


def ends_of(records: list[Record]) -> list[tuple[str, str]]:
    """The ends among some records."""
    return [(one.type, one.run_id) for one in records if isinstance(one, Event) and one.type != "training_started"]


def keyed(records: list[Record]) -> set[tuple[str, str, int, int, str]]:
    """The values of rows with the keys under which a store keeps them."""
    return {
        (row.run_id, name, row.row_step, row.sequence, repr(value))
        for row in records
        if isinstance(row, StepMetrics)
        for name, value in row.values.items()
    }


@pytest.mark.slow("starts a tracking server again")
async def test_a_server_that_restarts_loses_nothing(mlflow_server: RealServer, tmp_path: Path) -> None:
    run_id, _ = await call_script(mlflow_server, BEGIN.format(experiment="second"), tmp_path / "w")
    async with collecting(mlflow_server, tmp_path / "data", experiments=["second"]) as collector:
        first = await collect_round(collector)
        await asyncio.to_thread(mlflow_server.stop)
        try:
            with pytest.raises(LensError, match="does not answer"):
                await collector.collect()
        finally:
            await asyncio.to_thread(mlflow_server.start)
        await call_script(mlflow_server, GO_ON.format(run_id=run_id, end="pass"), tmp_path / "w2")
        second = await collect_round(collector)
    assert len(points_of(first, run_id)) == 24
    assert len(points_of(second, run_id)) == 12
    assert ends_of(second) == [("training_ended", run_id)]


def insert_runs(database: Path, prefix: str, count: int, values: int, status: str) -> str:
    """Write runs into a server's database, as its store does; returns the experiment's name."""
    now = int(time.time() * 1000)
    name = f"many {prefix}"
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        experiment = connection.execute(
            "insert into experiments (name, artifact_location, lifecycle_stage, creation_time, last_update_time)"
            " values (?, '', 'active', ?, ?) returning experiment_id",
            [name, now, now],
        ).fetchone()[0]
        runs = [f"{prefix}{number:031x}" for number in range(count)]
        end = None if status == "RUNNING" else now
        connection.executemany(
            "insert into runs (run_uuid, name, source_type, status, start_time, end_time, lifecycle_stage,"
            " artifact_uri, experiment_id, user_id, entry_point_name, source_name, source_version)"
            " values (?, ?, 'LOCAL', ?, ?, ?, 'active', '', ?, 'u', '', '', '')",
            [(run, f"run {run[-4:]}", status, now - 1000, end, experiment) for run in runs],
        )
        points = [("loss", float(step), now - 1000 + step, run, step) for run in runs for step in range(values)]
        connection.executemany(
            "insert into metrics (key, value, timestamp, run_uuid, step, is_nan) values (?, ?, ?, ?, ?, 0)", points
        )
        connection.executemany(
            "insert into latest_metrics (key, value, timestamp, step, is_nan, run_uuid) values ('loss', ?, ?, ?, 0, ?)",
            [(float(values - 1), now - 1000 + values - 1, values - 1, run) for run in runs],
        )
    return name


@pytest.mark.slow("asks a tracking server for a thousand histories")
async def test_a_thousand_runs(mlflow_server: RealServer, tmp_path: Path) -> None:
    name = insert_runs(mlflow_server.database, "a", 1_000, 4, "FINISHED")
    options = {"experiments": [name], "points_at_once": 1_000, "runs_per_page": 150}
    calls = 0
    async with collecting(mlflow_server, tmp_path, **options) as collector:
        values: Counter[str] = Counter()
        while calls == 0 or collector.more:
            found = await collector.collect()
            assert not isinstance(found, Partial), found
            values.update(record.run_id for record in found if isinstance(record, StepMetrics))
            assert sum(isinstance(record, StepMetrics) for record in found) <= 1_000 + 4 * 4
            await collector.stored()
            calls += 1
        assert calls >= 4
        assert Counter(values.values()) == Counter({4: 1_000})
        assert await collect_round(collector) == []
    assert (tmp_path / "runs.json").stat().st_size < 250_000
    assert set(json.loads((tmp_path / "runs.json").read_text())["runs"]) == set(values)


@pytest.mark.slow("starts a tracking server")
async def test_the_contract_of_collectors_with_a_server(mlflow_server: RealServer, tmp_path: Path) -> None:
    name = insert_runs(mlflow_server.database, "b", 3, 50, "RUNNING")
    good = Mlflow(MlflowSettings(url=mlflow_server.url, experiments=[name]), context(tmp_path / "good"))
    away = MlflowSettings(url="http://127.0.0.1:1", request_timeout_seconds=5)
    await check_collector(good, failing=Mlflow(away, context(tmp_path / "bad")))
    await good.check()
