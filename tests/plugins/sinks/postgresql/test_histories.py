"""`lens import`: histories of trackers, whole, and on from where an import was interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from array import array
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.commands.aim_reader import Column, rows_of_columns
from lens_plugins.sinks.postgresql.commands.histories import history_of, run_of
from tensorboardX import SummaryWriter

from lens_core import LensError
from tests.forked import run_lens
from tests.plugins.sinks.postgresql.support import points, running_store
from tests.plugins.sinks.postgresql.test_db import MLFLOW_TABLES, config, run_offline
from tests.plugins.sources.wandb_hook.environments import TRACKERS, environment


def mlflow_database(path: Path, runs: int, rows: int) -> None:
    """A database with as much of MLflow's tables as is read."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(MLFLOW_TABLES)
        for run in range(runs):
            described = [f"r{run}", "brave-fox", "1", "ada", "FINISHED", 1_700_000_000_000, 1_700_000_009_000, "active"]
            connection.execute("insert into runs values (?, ?, ?, ?, ?, ?, ?, ?)", described)
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
    assert (len(first), len(second)) == (2000, 1612), "900 rows, the start, the facts and the end of each"
    rest = [record async for piece in history_of("mlflow", where, state) for record in piece]
    assert {run_of(record) for record in rest} == {"r2", "r3"}, "runs that are stored whole are left out"
    assert len(rest) == 1806
    again = [record async for piece in history_of("mlflow", where, state) for record in piece]
    assert len(again) == 3612, "one that has ended begins anew"


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


AIM = """
    import math
    import aim

    run = aim.Run(repo=".", experiment="night", system_tracking_interval=None, capture_terminal_logs=False)
    run.name = "calm"
    run.description = "words"
    run.add_tag("good")
    run["hparams"] = {"lr": 0.1, "api_key": "hunter2", "odd": [None, math.inf]}
    run["seed"] = 7
    for step in range(5):
        run.track(1 / (step + 1), name="loss", step=step, context={"subset": "train"})
        run.track(math.nan if step == 2 else -math.inf, name="odd", step=step, epoch=1)
    run.track({"a": 1, "b": 2}, step=7)
    run.track(aim.Text("words"), name="text", step=1)
    run.track(3.0, name="counted")
    run.track(4.0, name="counted")
    run.track(1.0, name="__system__cpu", step=0)
    run.close()
    other = aim.Run(repo=".", system_tracking_interval=None, capture_terminal_logs=False)
    other.track(9, name="loss", step=3)
    other.close()
    print(run.hash, other.hash)
"""


@pytest.mark.slow("writes and reads a repository with the real package of Aim")
async def test_a_repository_of_aim(tmp_path: Path, postgres_dsn: str) -> None:
    aim = environment("trackers", TRACKERS)
    done = await asyncio.to_thread(aim.run, AIM, tmp_path, {"PYTHONPATH": ""})
    run_id, other_id = done.stdout.split()
    options = config(tmp_path, postgres_dsn)
    for where in (tmp_path, tmp_path / ".aim"):
        imported = await asyncio.to_thread(
            run_lens, "import", "aim", str(where), "--python", aim.python, "--json", *options
        )
        assert imported.returncode == 0, imported.stderr
    async with running_store(tmp_path / "s", postgres_dsn) as store:
        found = {(p.metric_name, p.iteration): p.value for p in await points(store, workload_uid=run_id)}
        names = {one.name for one in (await store.workloads()).workloads}
        assert [p.value for p in await points(store, workload_uid=other_id)] == [9.0]
        (described,) = (await store.evidence_of([run_id]))[run_id]
        events = await store.events(run_id)
    assert {place: value for place, value in found.items() if place[0] != "odd"} == {
        **{("train/loss", step): 1 / (step + 1) for step in range(5)},
        **{("a", 7): 1.0, ("b", 7): 2.0, ("counted", 0): 3.0, ("counted", 1): 4.0},
    }
    odd = [repr(found["odd", step]) for step in range(5)]
    assert odd == ["-inf", "-inf", "nan", "-inf", "-inf"]
    assert {"calm", other_id} <= names
    facts = described["facts"]
    assert facts["tracker"] == {
        **{"tracker": "aim", "id": run_id, "name": "calm", "experiment": "night", "tags": ["good"], "note": "words"}
    }
    assert facts["config"]["seed"] == 7
    assert facts["config"]["hparams"]["lr"] == 0.1
    assert facts["config"]["hparams"]["api_key"] == "***", "an import passes no ingest gate"
    assert sorted(event.type for event in events) == ["training_ended", "training_started"], "once, from two imports"


async def test_a_python_without_aim_and_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(LensError, match="is no repository of Aim"):
        await anext(history_of("aim", str(tmp_path), tmp_path / "data"))
    (tmp_path / ".aim").mkdir()
    if find_spec("aim") is None:
        with pytest.raises(LensError, match=r"needs the package aim.*--python"):
            await anext(history_of("aim", str(tmp_path), tmp_path / "data"))
    with pytest.raises(LensError, match="cannot be read"):
        await anext(history_of("aim", str(tmp_path), tmp_path / "data", str(broken_python(tmp_path))))


def broken_python(folder: Path) -> Path:
    """An interpreter that fails."""
    path = folder / "python"
    path.write_text("#!/bin/sh\necho 'the lock is held' >&2\nexit 3\n")
    path.chmod(0o755)
    return path


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.tuples(st.integers(-5, 5), st.floats()), max_size=5)), max_size=5
    )
)
def test_rows_of_metrics_have_every_value_once(columns: list[tuple[str, list[tuple[int, float]]]]) -> None:
    made = []
    for name, held in columns:
        ordered = sorted(held, key=lambda point: point[0])
        steps, values = [step for step, _ in ordered], [value for _, value in ordered]
        made.append(Column(name, array("q", steps), array("d", values), array("d", [1.0] * len(steps))))
    found = [(name, step, repr(value)) for step, _, row in rows_of_columns(made) for name, value in row.items()]
    assert sorted(found) == sorted((name, step, repr(value)) for name, some in columns for step, value in some)
