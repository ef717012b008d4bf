"""`lens db`: figures, tidying, a whole database out and in again, and what other systems have."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lens_plugins.sinks.postgresql.commands.transfer import header, lines, records_of

from lens_core import Detection, Diagnosis, Event, Evidence, Origin, Pod, StepMetrics, WorkloadReference
from tests.end_to_end.running_lens import RunningLens, metrics_body
from tests.forked import run_lens
from tests.plugins.sinks.postgresql.support import ORIGIN, Spool, ask, points, row, running_store


def lens(*arguments: str, code: int = 0) -> str:
    """Return the output of `lens db …`."""
    done = run_lens("db", *arguments)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout + (done.stderr if code else "")


def config(folder: Path, dsn: str) -> list[str]:
    """Options for a store on this database."""
    folder.mkdir(exist_ok=True)
    file = folder / "lens.yaml"
    file.write_text(f'sinks: {{store: {{type: postgresql, dsn: "{dsn}"}}}}\n')
    return ["--config", str(file), "--data-dir", str(folder / "data")]


def run_offline(folder: Path) -> None:
    """A real offline run of wandb."""
    folder.mkdir()
    program = (
        "import wandb; r = wandb.init(project='p', name='calm-owl'); "
        "[r.log({'loss': 3 - n}) for n in range(3)]; r.finish()"
    )
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240, env=environment, cwd=folder)


@pytest.fixture
def other_dsn(postgres_server: str) -> Any:
    """A second fresh database."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("create database test_other")
    yield psycopg.conninfo.make_conninfo(postgres_server, dbname="test_other")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("drop database test_other with (force)")


async def fill(folder: Path, dsn: str) -> None:
    """Rows with all that a row can have, two workloads, facts."""
    async with running_store(folder, dsn, blocks=False) as store:
        spool = Spool(store)
        await spool.deliver(
            *(
                row(step, iteration=step * 2, session="one", values={"loss": math.nan if step else 1.0})
                for step in range(3)
            ),
            *(row(step, session="two", values={"a": 1.0}, tags={"a": {"k": "v"}}) for step in range(300)),
        )
        await spool.deliver(row(0, session="two", sequence=7, values={"a": 2.0, "b": 3.0}, event_time=1_700_000_900.0))
        await spool.deliver(row(0, session="two", sequence=8, values={"b": 4.0}))
        ranks = [Origin(workload_uid="other", pod_name=f"p{rank}", rank=rank) for rank in range(2)]
        await spool.deliver(*(row(1, origin=o, data_source="log", values={f"m{o.rank}": 1.0, "x": 2.0}) for o in ranks))
        await spool.deliver(
            Event(origin=ORIGIN, type="out_of_memory", event_time=5.0, iteration=3, details={"gpu": 1}),
            Diagnosis(origin=ORIGIN, data_type="STACK_TRACE", data_content="main.py", node_rank=1, timestamp=8.0),
            Evidence(origin=ORIGIN, source="wandb", facts={"modules": ["x"]}, event_time=6.0),
            Detection(
                workload_uid="workload-1",
                source="log",
                framework="jax",
                layer="base",
                confidence=0.5,
                method="m",
                event_time=7.0,
            ),
            Pod(
                uid="pod-uid-1", name="trainer-0", namespace="team", workloads=[WorkloadReference(uid="top", name="t")]
            ),
        )


ROWS = (
    "select workload_uid, pod_uuid, serial, iteration, data_source, performance - 'created_at' - 'updated_at', cluster,"
    " run_id, rank, row_step, event_time from training_performance where workload_uid is not null"
    " order by workload_uid, data_source, run_id, serial, row_step"
)
FACTS = (
    "select type, iteration, details::text from lens_event",
    "select source, facts::text from lens_evidence",
    "select source, framework, confidence from lens_detection",
    "select workload_uid, pod_uid, pod_name from lens_membership order by 1, 2",
    "select metric, sum(points)::int from lens_catalogue group by 1 order by 1",
    "select node_rank, data_type, event_time_us, content from lens_diagnosis",
)


async def test_a_database_goes_out_and_in_again(tmp_path: Path, postgres_dsn: str, other_dsn: str) -> None:
    await fill(tmp_path / "s", postgres_dsn)
    here, there = config(tmp_path, postgres_dsn), config(tmp_path / "s", other_dsn)
    file = tmp_path / "all.jsonl.gz"
    assert "records were written" in lens("export", str(file), *here)
    for _ in range(2):
        counts = json.loads(lens("import", str(file), "--json", *there))
        assert counts["rejected"] == 0
        assert ask(other_dsn, ROWS) == ask(postgres_dsn, ROWS)
        for statement in FACTS:
            assert ask(other_dsn, statement) == ask(postgres_dsn, statement)
    lens("export", "--workload", "other", str(tmp_path / "one.jsonl"), *here)
    assert '"workload-1"' not in (tmp_path / "one.jsonl").read_text()


async def test_figures_and_tidying(tmp_path: Path, postgres_dsn: str) -> None:
    await fill(tmp_path / "s", postgres_dsn)
    options = config(tmp_path, postgres_dsn)
    assert "migration" in lens("migrate", *options)
    figures = json.loads(lens("stats", "--json", *options))
    assert (figures["rows"], figures["rows_in_blocks"]) == (304, 0)
    assert figures["largest"][0]["workload_uid"] == "workload-1"
    assert json.loads(lens("vacuum", "--json", *options))["blocks_made"] == 1
    assert json.loads(lens("stats", "--json", *options))["rows_in_blocks"] == 300
    assert "workload-1" in lens("stats", *options)


def test_what_is_no_export_is_said(tmp_path: Path, postgres_dsn: str) -> None:
    file = tmp_path / "file"
    file.write_text("hello")
    options = config(tmp_path, postgres_dsn)
    assert "was not made by" in lens("import", str(file), *options, code=1)
    assert "cannot be opened" in lens("import", str(tmp_path / "absent"), *options, code=1)
    file.write_text('{"lens_export": 1}\n{"record": "step_metrics"}\n')
    assert "line 2" in lens("import", str(file), *options, code=1)


async def test_no_record_is_lost_between_batches(tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_bytes(header() + lines([row(step) for step in range(4_100)]))
    pieces = [piece async for piece in records_of("lens", str(file))]
    assert [len(piece) for piece in pieces] == [2_000, 2_000, 100]
    assert [record.row_step for piece in pieces for record in piece if isinstance(record, StepMetrics)] == [
        *range(4_100)
    ]


UPSTREAM = """
create type training_data_source as enum ('log', 'wandb', 'tensorflow');
create table training_performance (id serial primary key, pod_uuid varchar(256), performance jsonb, iteration integer,
    created_at timestamptz, serial integer, workload_uid varchar(256), data_source training_data_source default 'log');
create table gpu_workload (uid text, name text, kind text, namespace text, parent_uid text);
insert into gpu_workload values
    ('top', 'my-workload', 'Workload', 'ns', ''), ('job', 'my-job', 'PyTorchJob', 'ns', 'top');
insert into training_performance (pod_uuid, performance, iteration, created_at, serial, workload_uid, data_source)
values
    ('pod', '{"lm_loss": 2.5, "target_iteration": 9}', 5, '2024-01-01 10:00Z', 2, 'job', 'log'),
    ('pod', '{"lm_loss": 2.5, "target_iteration": 9}', 5, '2024-01-01 10:00Z', 2, 'top', 'log'),
    ('pod', '{"source": "wandb", "run_id": "r", "step": 6, "loss": 0.5, "note": "x",
        "created_at": "2024-01-01T10:00:00Z", "updated_at": "2024-01-01T10:05:00Z", "history": [
        {"lm_loss": 2.25, "updated_at": "2024-01-01T10:01:00Z"},
        {"source": "wandb", "run_id": "r", "step": 6, "loss": 0.6, "updated_at": "2024-01-01T10:02:00Z"}]}',
        6, '2024-01-01 10:00Z', 1, 'job', 'wandb'),
    ('pod', '{"accuracy": "NaN", "wall_time": 1704103200.5, "file": "f", "step": 7}', 7, '2024-01-01 10:00Z', 0, 'job',
        'tensorflow');
"""


async def test_a_primus_lens_database(tmp_path: Path, postgres_dsn: str, other_dsn: str) -> None:
    with psycopg.connect(other_dsn) as connection:
        connection.execute(UPSTREAM)
    for _ in range(2):
        lens("import", "--from", "primus-lens", other_dsn, *config(tmp_path, postgres_dsn))
    async with running_store(tmp_path / "s", postgres_dsn) as store:
        found = await points(store, workload_uid="job")
        assert [(p.metric_name, p.value, p.iteration, p.data_source, p.run_id, p.attempt) for p in found][1:] == [
            ("lm_loss", 2.25, 6, "log", "", 1),
            ("lm_loss", 2.5, 5, "log", "", 2),
            ("loss", 0.5, 6, "wandb", "r", 1),
            ("target_iteration", 9.0, 5, "log", "", 2),
        ]
        assert (found[0].metric_name, math.isnan(found[0].value), found[0].timestamp) == (
            "accuracy",
            True,
            1704103200500,
        )
        assert len(await points(store, workload_uid="top")) == len(found)
    assert ask(postgres_dsn, "select count(*) from lens_row")[0] == (4,)
    assert "cannot be read" in lens(
        "import", "--from", "primus-lens", postgres_dsn + "x", *config(tmp_path, postgres_dsn), code=1
    )


async def test_rows_that_primus_lens_has_only_under_a_workload_above(
    tmp_path: Path, postgres_dsn: str, other_dsn: str
) -> None:
    columns = "(pod_uuid, performance, iteration, created_at, serial, workload_uid, data_source)"
    rows = [
        ("top", 8, "wandb", '{"source": "wandb", "run_id": "r", "step": 8, "loss": 0.25}'),  # nowhere else
        ("top", 5, "wandb", '{"source": "wandb", "run_id": "r", "step": 5, "loss": 0.75}'),  # beside a row of a log
        ("top", 6, "wandb", '{"source": "wandb", "run_id": "r", "step": 6, "loss": 0.5}'),  # the job has it
        ("job", 9, "log", '{"lm_loss": 1.5}'),
        ("top", 9, "log", '{"lm_loss": 1.25}'),  # with another value
        ("job", 10, "log", '{"lm_loss": "NaN"}'),
        ("top", 10, "log", '{"lm_loss": "NaN"}'),  # the same
    ]
    with psycopg.connect(other_dsn) as connection:
        connection.execute(UPSTREAM)
        for uid, iteration, source, performance in rows:
            connection.execute(
                f"insert into training_performance {columns} values ('pod', %s, %s, now(), 1, %s, %s)".encode(),
                [performance, iteration, uid, source],
            )
    lens("import", "--from", "primus-lens", other_dsn, *config(tmp_path, postgres_dsn))
    stored = ask(
        postgres_dsn,
        "select u.workload_uid, r.row_step, t.data_source from lens_row r join lens_stream t on t.id = r.stream_id"
        " join lens_subject u on u.id = t.subject_id where r.row_step in (5, 8, 9, 10)",
    )
    assert sorted(stored) == [
        ("job", 5, "log"), ("job", 9, "log"), ("job", 10, "log"), ("top", 5, "wandb"), ("top", 8, "wandb"),
        ("top", 9, "log"),
    ]  # fmt: skip


MLFLOW_TABLES = (
    "create table runs (run_uuid text, name text, experiment_id int, user_id text, status text, start_time bigint,"
    " end_time bigint, lifecycle_stage text);"
    "create table experiments (experiment_id int, name text);"
    "create table params (key text, value text, run_uuid text);"
    "create table tags (key text, value text, run_uuid text);"
    "create table metrics (key text, value double precision, timestamp bigint, run_uuid text, step bigint, is_nan int);"
)


async def test_runs_of_mlflow(tmp_path: Path, postgres_dsn: str) -> None:
    database = tmp_path / "mlflow.db"
    with sqlite3.connect(database) as connection:
        connection.executescript(
            MLFLOW_TABLES + "insert into runs values"
            " ('gone', 'old', 1, 'ada', 'FINISHED', 1700000000000, 1700000003000, 'deleted'),"
            " ('r1', 'brave-fox', 1, 'ada', 'FAILED', 1700000000000, 1700000003000, 'active');"
            "insert into params values ('lr', '0.1', 'r1'), ('api_key', 'hunter2', 'r1');"
            "insert into tags values ('team', 'vision', 'r1'), ('mlflow.source.git.commit', 'abc', 'r1');"
            "insert into experiments values (1, 'night');"
            "insert into metrics values"
            " ('loss', 0.5, 1700000000000, 'gone', 1, 0), ('system/cpu', 9.0, 1700000000000, 'r1', 1, 0),"
            " ('loss', 0.5, 1700000000000, 'r1', 1, 0), ('acc', 0, 1700000000000, 'r1', 1, 1),"
            " ('loss', 0.25, 1700000001000, 'r1', 1, 0), ('loss', 1.7976931348623157e308, 1700000002000, 'r1', 2, 0);"
        )
    connection.close()
    folder = tmp_path / "mlruns" / "0" / "r2"
    (folder / "metrics" / "train").mkdir(parents=True)
    (folder / "meta.yaml").write_text("run_id: r2\nrun_name: calm-owl\nstatus: 3\nend_time: 1700000002000\n")
    (folder.parent / "meta.yaml").write_text("experiment_id: '0'\nname: day\n")
    for kind in ("params", "tags"):
        (folder / kind).mkdir()
        (folder / kind / "size").write_text(f"of {kind}")
    (folder / "metrics" / "train" / "loss").write_text("1700000000000 1.5 0\n1700000001000 1.25 1\n")
    options = config(tmp_path, postgres_dsn)
    lens("import", "--from", "mlflow", f"sqlite:///{database}", *options)
    lens("import", "--from", "mlflow", str(tmp_path / "mlruns"), *options)
    async with running_store(tmp_path / "s", postgres_dsn) as store:
        found = [(p.metric_name, repr(p.value), p.iteration) for p in await points(store, workload_uid="r1")]
        assert found == [("acc", "nan", 1), ("loss", "0.25", 1), ("loss", "inf", 2)]
        assert [p.value for p in await points(store, workload_uid="r2")] == [1.5, 1.25]
        assert {w.name for w in (await store.workloads()).workloads} == {"brave-fox", "calm-owl"}
        facts = {uid: items[0]["facts"] for uid, items in (await store.evidence_of(["r1", "r2"])).items()}
        assert facts["r1"]["config"] == {"lr": "0.1", "api_key": "***"}
        assert facts["r1"]["tracker"] == {
            **{"tracker": "mlflow", "id": "r1", "name": "brave-fox", "experiment": "night", "user": "ada"},
            **{"tags": {"team": "vision"}, "commit": "abc"},
        }
        assert (facts["r2"]["config"], facts["r2"]["tracker"]["tags"]) == ({"size": "of params"}, {"size": "of tags"})
        assert facts["r2"]["project"] == "day"
    told = ask(postgres_dsn, "select type from lens_event order by type")
    assert told == [("training_ended",), ("training_failed",), ("training_started",), ("training_started",)]
    assert "is no database" in lens("import", "--from", "mlflow", str(tmp_path / "lens.yaml"), *options, code=1)


async def test_offline_runs_of_wandb(tmp_path: Path, postgres_dsn: str) -> None:
    run_offline(tmp_path / "wandb-dir")
    counts = json.loads(
        lens(
            "import", "--from", "wandb-offline", str(tmp_path / "wandb-dir"), "--json", *config(tmp_path, postgres_dsn)
        )
    )
    assert counts["records"] >= 3
    async with running_store(tmp_path / "s", postgres_dsn) as store:
        (workload,) = (await store.workloads()).workloads
        assert workload.name == "calm-owl"
        assert [p.value for p in await points(store, workload_uid=workload.workload_uid, metrics=("loss",))] == [
            3,
            2,
            1,
        ]


def test_beside_a_daemon_and_without_one(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    daemon = RunningLens(data_dir).start()
    try:
        daemon.post("/wandb/metrics", metrics_body("w", range(10)))
        daemon.drained()
        options = ["--data-dir", str(data_dir)]
        assert json.loads(lens("stats", "--json", *options))["rows"] == 10
        lens("export", str(tmp_path / "all.jsonl"), *options)
        assert daemon.points("w")
        daemon.stop()
        assert json.loads(lens("stats", "--json", *options))["rows"] == 10
        assert json.loads(lens("import", str(tmp_path / "all.jsonl"), "--json", *options))["records"] >= 10
        assert json.loads(lens("stats", "--json", *options))["rows"] == 10
    finally:
        daemon.end()
