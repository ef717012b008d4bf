"""Each tracker with its real package: every row arrives, once, however the process ends."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.generated import part
from tests.plugins.sources.wandb_hook import environments
from tests.plugins.sources.wandb_hook.environments import Environment, write_script
from tests.plugins.sources.wandb_hook.receiver import Receiver
from tests.plugins.sources.wandb_hook.tracker_scripts import TRACKERS, script_of

ROWS = 120
QUIET = {
    "TRACKIO_DIR": "trackio",
    "CLEARML_CACHE_DIR": "clearml",
    "COMET_LOGGING_CONSOLE": "ERROR",
    "CLEARML_LOG_LEVEL": "ERROR",
    "WORKLOAD_UID": "w",
}


@pytest.fixture(scope="session")
def trackers_environment() -> environments.Environment:
    """All trackers and frameworks, in their newest versions."""
    return environments.environment("trackers", environments.TRACKERS)


OLD = ("mlflow", "swanlab", "comet", "clearml")
VERSIONS = [
    *(pytest.param(tracker, "new", id=tracker) for tracker in TRACKERS),
    *(pytest.param(tracker, "old", id=f"{tracker}-old") for tracker in OLD),
]


def environment_of(version: str) -> Environment:
    """All trackers in their newest versions, or those whose functions were others."""
    if version == "old":
        return environments.environment("old-trackers", environments.OLD_TRACKERS)
    return environments.environment("trackers", environments.TRACKERS)


def variables(receiver: Receiver, **more: str) -> dict[str, str]:
    """The environment of a job that uses a tracker offline."""
    return {**QUIET, "PRIMUS_LENS_API_BASE_URL": receiver.url, **more}


def expected(tracker: str, rows: int) -> Counter[tuple[int, str, float]]:
    """The points of `rows` calls of `log_row`."""
    loss, rate = TRACKERS[tracker].names
    return Counter({(step, name, value): 1 for step in range(rows) for name, value in ((loss, step), (rate, 0.5))})


BURST = f"""
    start()
    def log_twenty(first):
        for step in range(first, first + 20):
            log_row(step)
    threads = [threading.Thread(target=log_twenty, args=(first,)) for first in ({ROWS - 40}, {ROWS - 20})]
    for step in range({ROWS - 40}):
        log_row(step)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""
# What ends the process, and its exit code; that of an interrupt is the tracker's to choose.
ENDINGS: Mapping[str, tuple[str, int | None]] = {
    "error": ("raise ValueError('the end')", 1),
    "exit": ("sys.exit(3)", 3),
    "return": ("pass", 0),
    "interrupt": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(240)", None),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("tracker", "version"), VERSIONS)
def test_a_burst_from_several_threads_arrives_however_the_process_ends(
    receiver: Receiver, tmp_path: Path, tracker: str, version: str, ending: str
) -> None:
    text, code = ENDINGS[ending]
    script = script_of(tracker, f"{BURST}    {text}\n")
    done = environment_of(version).run(script, tmp_path, variables(receiver), check=False)
    assert done.returncode == code or (code is None and done.returncode != 0), done.stderr
    assert "lens-hook" not in done.stderr
    assert Counter(receiver.points()) == expected(tracker, ROWS)
    assert {row["data_source"] for row in receiver.rows()} == {tracker}
    assert len({(row["run_id"], row["session"]) for row in receiver.rows()}) == 1
    assert "echo_of" not in receiver.rows()[0]
    events = receiver.records("event")
    assert [event["type"] for event in events] == [
        "training_started",
        "training_ended" if ending == "return" else "training_failed",
    ]
    assert ending != "error" or "the end" in events[1]["details"]["reason"]
    facts = receiver.records("evidence")[0]["facts"]
    assert facts["tracker"]["tracker"] == tracker
    assert facts["tracker"]["id"] == receiver.rows()[0]["run_id"]
    assert facts["modules"]


KILLED = """
    start()
    for step in range(20):
        log_row(step)
    import glob
    deadline = time.monotonic() + 240    # what is older than one interval is left: wait until it is spooled
    while not any('":19' in open(path).read() for path in glob.glob(f"spool/*-{os.getpid()}-*.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
"""
NEXT_PROCESS = """
    import os, time, lens_hook
    lens_hook.attach()
    from lens_hook import runtime, tracking
    tracking.log_row(tracking.open_run("next", "next", dict), {"next": 1}, 0)
    store = lambda: runtime.get_runtime().worker._store
    own = lambda: os.path.basename(store().path or "") if store() else ""
    deadline = time.monotonic() + 240
    while [name for name in os.listdir("spool") if name.endswith(".jsonl") and name != own()]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
"""


@pytest.mark.slow("imports trackers, each in a process of its own")
@pytest.mark.parametrize("version", ["new", "old"])
def test_what_killed_processes_spooled_is_sent(receiver: Receiver, tmp_path: Path, version: str) -> None:
    trackers_environment = environment_of(version)
    (tmp_path / "spool").mkdir()
    environment = trackers_environment.variables(
        tmp_path, variables(receiver, PRIMUS_LENS_SPOOL_PATH=str(tmp_path / "spool"))
    )
    python = trackers_environment.python
    killed = part([*TRACKERS] if version == "new" else OLD)  # what is spooled is the same for all
    for tracker in killed:  # one after another: their imports take all cores
        script = write_script(script_of(tracker, KILLED), tmp_path)
        done = subprocess.run([python, str(script)], env=environment, cwd=tmp_path, capture_output=True, timeout=240)
        assert done.returncode == -9, done.stderr
    trackers_environment.run(NEXT_PROCESS, tmp_path, environment)
    seen = {
        (row["data_source"], row["row_step"], name, value)
        for row in receiver.rows()
        for name, value in row["values"].items()
    }
    wanted = {(tracker, *point) for tracker in killed for point in expected(tracker, 20)}
    assert seen == wanted | {("next", 0, "next", 1)}


FORKED = """
    def work():
        start()
        for step in range(5):
            log_row(step)

    exec(IMPORT)
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0, child.exitcode
"""


@pytest.mark.slow("imports each tracker")
@pytest.mark.parametrize(("tracker", "version"), [one for one in VERSIONS if "clearml" not in one.values])
def test_a_forked_child_with_a_run_of_its_own(receiver: Receiver, tmp_path: Path, tracker: str, version: str) -> None:
    imported = TRACKERS[tracker].start.partition(";")[0]
    script = script_of(tracker, FORKED).replace("exec(IMPORT)", imported)
    environment_of(version).run(script, tmp_path, variables(receiver))
    assert Counter(receiver.points()) == expected(tracker, 5)


@pytest.mark.parametrize("version", ["new", "old"])
def test_a_dictionary_of_comet_keeps_its_step_while_another_thread_logs(
    receiver: Receiver, tmp_path: Path, version: str
) -> None:
    body = """
        start()
        class Rows(dict):
            def items(self):
                other = threading.Thread(target=run.set_step, args=(999,))
                other.start()
                other.join()
                return super().items()
        run.log_metrics(Rows(loss=1, lr=0.5), step=7)
    """
    environment_of(version).run(script_of("comet", body), tmp_path, variables(receiver))
    assert sorted(receiver.points()) == [(7, "loss", 1), (7, "lr", 0.5)]


def test_only_the_named_trackers(trackers_environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import lens_hook
        lens_hook.attach()
        import wandb, trackio
        wandb.init(mode="offline")
        run = trackio.init(project="p")
        for step in range(3):
            wandb.log({"loss": step})
            run.log({"loss": step})
    """
    chosen = variables(receiver, PRIMUS_LENS_TRACKERS="Trackio, tracky")
    done = trackers_environment.run(script, tmp_path, chosen)
    assert [row["data_source"] for row in receiver.rows()] == ["trackio"] * 3
    (line,) = [line for line in done.stderr.splitlines() if "lens-hook" in line]
    assert "PRIMUS_LENS_TRACKERS names 'tracky'; known are accelerate, aim, " in line


BESIDE = """
    import os, trackio
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    def write(writer):
        writer.add_event(Event(step=1, summary=Summary(value=[Summary.Value(tag="loss", simple_value=1.0)])))
        writer.flush()

    def wait_until_forgotten():  # as in a notebook that stays open
        from lens_hook import runtime
        while any(known.ended for known in runtime.get_runtime().sessions):
            runtime.get_runtime().drain(10)
            runtime.get_runtime().forget_ended()

    for part in os.environ["PARTS"].split(","):
        if part == "writer":
            write(EventFileWriter("logs"))
        elif part == "run":
            run = trackio.init(project="p")
            run.log({"loss": 1})
        else:
            run.finish()
            wait_until_forgotten()
"""


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ("run,writer,finish", ["trackio", "trackio"]),
        ("writer,run,finish", ["trackio", "trackio"]),
        ("run,writer,finish,run,writer,finish", ["trackio"] * 4),
        ("run,finish,writer", ["trackio", "trackio", "tensorflow"]),
        ("writer", ["tensorflow"]),
    ],
)
def test_a_writer_beside_a_run_has_no_end_of_its_own(
    trackers_environment: Environment, receiver: Receiver, tmp_path: Path, parts: str, told: list[str]
) -> None:
    trackers_environment.run(BESIDE, tmp_path, variables(receiver, PARTS=parts))
    assert [event["details"]["source"] for event in receiver.records("event")] == told


MLFLOW = """
    import mlflow
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment("night")
    with mlflow.start_run(run_name="calm-owl", tags={"team": "a"}) as parent:
        mlflow.log_params({"lr": 0.1, "api_key": "hunter2"})
        for value in (3.0, 2.0, 1.0):
            mlflow.log_metric("no_step", value)
        for step in range(3):
            mlflow.log_metric("loss", step / 2, step=step)
            mlflow.log_metric("later", step, step=step, synchronous=False)
        mlflow.log_metrics({"system/cpu": 1.0})
        from mlflow.entities import Metric
        client = mlflow.MlflowClient()
        client.log_batch(run_id=parent.info.run_id,
                         metrics=[Metric("batch", step, 1_700_000_000_000 + step, step) for step in range(3)])
        try:
            with mlflow.start_run(nested=True):
                mlflow.log_metric("child", 1.0, step=7)
                raise ValueError("a trial that fails")
        except ValueError:
            pass
"""


def test_what_mlflow_says_of_its_runs(trackers_environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    trackers_environment.run(MLFLOW, tmp_path, variables(receiver))
    assert sorted(receiver.points()) == sorted(
        [(step, "no_step", value) for step, value in enumerate((3.0, 2.0, 1.0))]
        + [(step, name, step * factor) for step in range(3) for name, factor in (("loss", 0.5), ("later", 1))]
        + [(step, "batch", step) for step in range(3)]
        + [(7, "child", 1.0)]
    )
    times = [row["event_time"] for row in receiver.rows() if "batch" in row["values"]]
    assert times == [1_700_000_000 + step / 1000 for step in range(3)]
    parent, child = sorted({row["run_id"] for row in receiver.rows()}, key=lambda run: run == child_of(receiver))
    facts = [record["facts"] for record in receiver.records("evidence") if record["run_id"] == parent][-1]
    assert facts["tracker"] == {
        "tracker": "mlflow",
        "id": parent,
        "name": "calm-owl",
        "experiment": "night",
        "tags": {"team": "a"},
    }
    assert facts["config"] == {"lr": "0.1", "api_key": "***"}
    assert facts["project"] == "night"
    of_child = [record["facts"]["tracker"] for record in receiver.records("evidence") if record["run_id"] == child][-1]
    assert of_child["parent"] == parent
    ends = {record["run_id"]: record["type"] for record in receiver.records("event") if "started" not in record["type"]}
    assert ends == {parent: "training_ended", child: "training_failed"}


def child_of(receiver: Receiver) -> str:
    """The run that logged `child`."""
    (run,) = {str(row["run_id"]) for row in receiver.rows() if "child" in row["values"]}
    return run
