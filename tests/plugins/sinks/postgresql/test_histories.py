"""`lens import`: histories of trackers, whole, and on from where an import was interrupted."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest
from lens_plugins.sinks.postgresql.commands.histories import history_of, run_of
from tensorboardX import SummaryWriter

from lens_core import LensError
from tests.forked import run_lens
from tests.plugins.sinks.postgresql.support import points, running_store
from tests.plugins.sinks.postgresql.test_db import config, run_offline


def mlflow_database(path: Path, runs: int, rows: int) -> None:
    """A database with as much of MLflow's tables as is read."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "create table runs (run_uuid text, name text);"
            "create table metrics (key text, value real, timestamp integer, run_uuid text, step integer, is_nan int);"
        )
        for run in range(runs):
            connection.execute("insert into runs values (?, 'brave-fox')", [f"r{run}"])
            connection.executemany(
                "insert into metrics values ('loss', ?, 1700000000000, ?, ?, 0)",
                [(step / 2, f"r{run}", step) for step in range(rows)],
            )


async def test_an_interrupted_import_goes_on(tmp_path: Path) -> None:
    mlflow_database(tmp_path / "mlflow.db", 4, 900)
    where, state = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "data"
    pieces = history_of("mlflow", where, state)
    first = await anext(pieces)
    second = await anext(pieces)  # the first has been stored
    await pieces.aclose()
    assert (len(first), len(second)) == (2000, 1600)
    rest = [record async for piece in history_of("mlflow", where, state) for record in piece]
    assert {run_of(record) for record in rest} == {"r2", "r3"}, "runs that are stored whole are left out"
    assert len(rest) == 1800
    again = [record async for piece in history_of("mlflow", where, state) for record in piece]
    assert len(again) == 3600, "one that has ended begins anew"


async def test_event_files_and_offline_runs(tmp_path: Path, postgres_dsn: str) -> None:
    with contextlib.closing(SummaryWriter(str(tmp_path / "logs" / "night"))) as writer:
        for step in range(5):
            writer.add_scalar("loss", step / 2, step)
    run_offline(tmp_path / "wandb-dir")
    options = config(tmp_path, postgres_dsn)
    for tracker, folder in (("tensorboard", "logs"), ("wandb", "wandb-dir"), ("tensorboard", "logs")):
        done = run_lens("import", tracker, str(tmp_path / folder), "--json", *options)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["records"] >= 3
    async with running_store(tmp_path / "s", postgres_dsn) as store:
        assert [p.value for p in await points(store, workload_uid="night")] == [step / 2 for step in range(5)]
        names = {found.name for found in (await store.workloads()).workloads}
        assert {"night", "calm-owl"} <= names | {found.workload_uid for found in (await store.workloads()).workloads}


async def test_a_place_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(LensError, match="is no folder"):
        await anext(history_of("tensorboard", str(tmp_path / "nowhere"), tmp_path / "data"))
