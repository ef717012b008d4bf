"""`lens import` with kill -9 in the middle and run again: every point is there, once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.forked import ForkedLens, run_lens
from tests.plugins.sinks.postgresql.support import points, running_store
from tests.plugins.sinks.postgresql.test_db import config
from tests.plugins.sources.wandb_hook.environments import TRACKERS, environment

RUNS, ROWS = 3, 1200
LONG = 4000  # bytes beside a value, so that files are read in several pieces
# What the real packages write; the value of a row is its own in all runs.
WRITERS = {
    "mlflow": """
        import mlflow
        from mlflow.entities import Metric
        mlflow.set_tracking_uri("sqlite:///mlflow.db")
        for run in range(RUNS):
            with mlflow.start_run() as made:
                for first in range(0, ROWS, 600):
                    held = [Metric("loss", run * 10_000 + step, 1_700_000_000_000 + step, step)
                            for step in range(first, first + 600)]
                    mlflow.MlflowClient().log_batch(made.info.run_id, held)
    """,
    "tensorboard": """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        for run in range(RUNS):
            writer = EventFileWriter(f"logs/run{run}", max_queue_size=10_000)
            for step in range(ROWS):
                image = Summary.Value(tag="image", image=Summary.Image(encoded_image_string=b"x" * LONG))
                loss = Summary.Value(tag="loss", simple_value=run * 10_000 + step)
                writer.add_event(Event(wall_time=1_700_000_000 + step, step=step, summary=Summary(value=[loss, image])))
            writer.close()
    """,
    "wandb": """
        import wandb
        for run in range(RUNS):
            made = wandb.init(project="p", dir=".")
            for step in range(ROWS):
                made.log({"loss": run * 10_000 + step, "text": "x" * LONG}, step=step)
            made.finish()
    """,
    "aim": """
        import aim
        for run in range(RUNS):
            made = aim.Run(repo=".", system_tracking_interval=None, capture_terminal_logs=False)
            for step in range(ROWS):
                made.track(run * 10_000 + step, name="loss", step=step)
            made.close()
    """,
}
PLACES = {"mlflow": "sqlite:///{}/mlflow.db", "tensorboard": "{}/logs", "wandb": "{}/wandb", "aim": "{}"}
STORED = "select coalesce(sum(points), 0) from lens_catalogue"
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def wait_until(connection: psycopg.Connection[Any], statement: str, least: int, importing: ForkedLens) -> None:
    """Ask the database until the answer is large enough, or the import has ended."""
    deadline = time.monotonic() + 240
    while importing.poll() is None:
        found = connection.execute(statement.encode()).fetchone()
        if found is not None and found[0] >= least:
            return
        assert time.monotonic() < deadline
        time.sleep(0.002)


def import_and_kill(arguments: list[str], dsn: str, stored: int, errors: Path) -> int:
    """Kill an import within its first write, or as soon as so many points are stored; its exit code."""
    with psycopg.connect(dsn, autocommit=True) as watching, psycopg.connect(dsn) as locking:
        if not stored:
            locking.execute(b"lock table lens_catalogue in exclusive mode")
        importing = ForkedLens(arguments, errors)
        with contextlib.closing(importing.stdout):
            wait_until(watching, STORED if stored else WAITING, stored or 1, importing)
            importing.kill()
            return importing.wait(240)


@pytest.mark.slow("imports trackers and writes thousands of rows with them")
@pytest.mark.parametrize("tracker", WRITERS)
async def test_every_point_once_whenever_an_import_was_killed(tmp_path: Path, postgres_dsn: str, tracker: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    written = environment("trackers", TRACKERS)
    script = f"RUNS, ROWS, LONG = {RUNS}, {ROWS}, {LONG}" + WRITERS[tracker].replace("\n        ", "\n")
    await asyncio.to_thread(written.run, script, work, {"PYTHONPATH": ""})
    async with running_store(tmp_path / "s", postgres_dsn):
        pass  # makes the tables
    arguments = ["import", tracker, PLACES[tracker].format(work), *config(tmp_path, postgres_dsn)]
    arguments += ["--python", written.python]
    for stored in (0, 1, RUNS * ROWS // 2):
        code = await asyncio.to_thread(import_and_kill, arguments, postgres_dsn, stored, tmp_path / "errors.txt")
        assert code == -9 or (stored and code == 0), "it may have ended when its last points are seen"
    done = await asyncio.to_thread(run_lens, *arguments)
    assert done.returncode == 0, done.stderr
    async with running_store(tmp_path / "s", postgres_dsn) as store:
        uids = [found.workload_uid for found in (await store.workloads()).workloads]
        values = [point.value for uid in uids for point in await points(store, workload_uid=uid)]
    assert Counter(values) == Counter({run * 10_000 + step: 1 for run in range(RUNS) for step in range(ROWS)})
    assert len(uids) == RUNS
