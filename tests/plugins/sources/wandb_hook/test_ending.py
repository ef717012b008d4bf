"""Every way for a process to end: what arrives, and how long it takes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.running_lens import wait_for
from tests.plugins.sources.wandb_hook.environments import Environment, write_script
from tests.plugins.sources.wandb_hook.receiver import Receiver, receiving
from tests.ports import free_port


@pytest.mark.parametrize(
    ("ending", "code", "event"),
    [
        ("wandb.finish()", 0, "training_ended"),
        ("pass", 0, "training_ended"),
        ("sys.exit(3)", 3, "training_failed"),
        ("raise ValueError('boom')", 1, "training_failed"),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", None, "training_failed"),
    ],
)
def test_everything_arrives(
    newest: Environment, receiver: Receiver, tmp_path: Path, ending: str, code: int | None, event: str
) -> None:
    script = f"""
        import os, signal, sys, time
        import wandb
        wandb.init(project="p")
        for step in range(200):
            wandb.log({{"loss": step}})
        {ending}
    """
    done = newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url}, check=False)
    assert code is None or done.returncode == code
    assert receiver.points() == [(step, "loss", step) for step in range(200)]
    assert [record["type"] for record in receiver.records("event")] == ["training_started", event]
    assert "lens-hook" not in done.stderr


NEXT_PROCESS = """
    import os, time
    import wandb
    wandb.init(project="p", mode="disabled")
    wandb.log({"next": 1})
    from lens_hook import runtime
    store = lambda: runtime.get_runtime().worker._store
    own = lambda: os.path.basename(store().path or "") if store() else ""
    deadline = time.monotonic() + 240
    while [name for name in os.listdir("spool") if name.endswith(".jsonl") and name != own()]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
"""
ENDINGS = """
    import glob, os, signal, sys, time
    import wandb
    run = wandb.init(project="p", id=sys.argv[1])
    for step in range(20):
        wandb.log({"loss": step})
    if sys.argv[1] in ("SIGTERM", "SIGKILL", "_exit"):
        deadline = time.monotonic() + 240    # they leave what is older than one interval: wait until it is spooled
        while not any('"loss":19' in open(path).read() for path in glob.glob(f"spool/*-{os.getpid()}-*.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    {
        "finish": wandb.finish,
        "nothing": lambda: None,
        "exit": lambda: sys.exit(3),
        "error": lambda: no_such_name,
        "SIGINT": lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(20)),
        "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "_exit": lambda: os._exit(4),
    }[sys.argv[1]]()
"""
CODES = {"finish": 0, "nothing": 0, "exit": 3, "error": 1, "SIGINT": -2, "SIGTERM": -15, "SIGKILL": -9, "_exit": 4}


def test_every_ending_with_every_wandb(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    script = str(write_script(ENDINGS, tmp_path))
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "spool")}
    environment = each_wandb.variables(tmp_path, variables)
    jobs = {
        name: subprocess.Popen(
            [each_wandb.python, script, name], env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL
        )
        for name in CODES
    }
    assert {name: job.wait(240) for name, job in jobs.items()} == CODES
    # What the killed ones left is sent by the next process of the directory.
    each_wandb.run(NEXT_PROCESS, tmp_path, variables)
    seen = Counter((row["run_id"], row["values"]["loss"]) for row in receiver.rows() if "loss" in row["values"])
    assert set(seen) == {(name, step) for name in CODES for step in range(20)}
    # Who died between the answer and the note of it leaves rows that are sent again: the same ones, by their sequence.
    assert all(count == 1 for (name, _), count in seen.items() if CODES[name] >= 0 and name != "_exit")


# Whatever is not bound to the deadline of the exit takes an hour, which no test waits for.
AN_HOUR = "3600"
FIFTY_STEPS = """
    import wandb
    from lens_hook import client, worker
    client.REQUEST_SECONDS = worker.REQUEST_SECONDS = 3600.0
    wandb.init(project="p", mode="disabled")
    for step in range(50):
        wandb.log({"loss": step})
"""


def test_a_receiver_that_is_down_is_counted_and_said_once(newest: Environment, tmp_path: Path) -> None:
    url = f"http://user:secret@127.0.0.1:{free_port()}/api/v1"
    variables = {"PRIMUS_LENS_API_BASE_URL": url, "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "1"}
    done = newest.run(FIFTY_STEPS, tmp_path, variables)
    lines = [line for line in done.stderr.splitlines() if "lens-hook" in line]
    assert len(lines) == 1
    assert "50 of 50 rows (50 points) did not reach http://127.0.0.1:" in lines[0]
    assert "secret" not in done.stderr


def test_a_receiver_that_never_answers_does_not_hold_the_exit(newest: Environment, tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(8)
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/api/v1"
        variables = {"PRIMUS_LENS_API_BASE_URL": url, "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "1"}
        done = newest.run(FIFTY_STEPS, tmp_path, variables)
    assert "50 of 50 rows" in done.stderr


HANGING = """
    import time
    import wandb
    from lens_hook import runtime
    wandb.init(project="p", mode="disabled")
    wandb.log({"loss": -1})
    deadline = time.monotonic() + 240
    while runtime.get_runtime().worker._client is None or runtime.get_runtime().worker._client._connection is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for step in range(50):
        wandb.log({"loss": step})
"""


@pytest.mark.parametrize("spool", [False, True])
def test_rows_behind_a_request_that_hangs_are_spooled_or_counted(
    newest: Environment, tmp_path: Path, spool: bool
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(8)
        variables = {
            "PRIMUS_LENS_API_BASE_URL": f"http://127.0.0.1:{deaf.getsockname()[1]}/api/v1",
            "PRIMUS_LENS_FLUSH_INTERVAL_SECONDS": "1",
            "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "0.2",
            **({"PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "spool")} if spool else {}),
        }
        done = newest.run(HANGING, tmp_path, variables)
    assert ("51 of 51 rows (51 points) did not reach" in done.stderr) != spool
    assert "; no answer came in time" in done.stderr
    if spool:
        (file,) = (tmp_path / "spool").glob("*.jsonl")
        assert file.read_text().count('"step_metrics"') == 51


def test_a_name_that_does_not_resolve(newest: Environment, tmp_path: Path) -> None:
    variables = {
        "PRIMUS_LENS_API_BASE_URL": "http://no-such-host.invalid:8080/api/v1",
        "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "1",
    }
    done = newest.run(FIFTY_STEPS, tmp_path, variables)
    assert "50 of 50 rows" in done.stderr


RUNNING = """
    import os, time
    import wandb
    wandb.init(project="p", mode="disabled")
    for step in range(100):
        wandb.log({"loss": step})
    print("ready", flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_loses_at_most_one_interval(
    newest: Environment, receiver: Receiver, tmp_path: Path, how: signal.Signals
) -> None:
    process = newest.start(RUNNING, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    receiver.wait_for(lambda: len(receiver.points()) == 100)
    process.send_signal(how)
    process.communicate(timeout=240)
    assert len(receiver.points()) == 100


def test_a_killed_process_leaves_its_rows_to_the_next_one(newest: Environment, tmp_path: Path) -> None:
    port, spool = free_port(), tmp_path / "spool"
    variables = {
        "PRIMUS_LENS_API_BASE_URL": f"http://127.0.0.1:{port}/api/v1",
        "PRIMUS_LENS_SPOOL_PATH": str(spool),
        "RANK": "3",
    }
    process = newest.start(RUNNING, tmp_path, variables)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    wait_for(lambda: "".join(path.read_text() for path in spool.glob("*.jsonl")).count('"loss"') == 100)
    process.kill()
    process.communicate(timeout=240)
    left = list(spool.glob("*.jsonl"))
    assert len(left) == 1
    with receiving(port=port) as receiver:
        script = f"""
            import os, time
            import wandb
            wandb.init(project="p", mode="disabled")
            wandb.log({{"next": 1}})
            deadline = time.monotonic() + 240
            while os.path.exists({str(left[0])!r}):
                assert time.monotonic() < deadline
                time.sleep(0.05)
        """
        newest.run(script, tmp_path, {**variables, "RANK": "0"})
        rows = receiver.rows()
    assert sorted(value for row in rows for name, value in row["values"].items() if name == "loss") == list(range(100))
    assert {row["origin"]["rank"] for row in rows if "loss" in row["values"]} == {3}
    assert {row["origin"]["rank"] for row in rows if "next" in row["values"]} == {0}
    assert list(spool.iterdir()) == []


def test_os_exit_with_a_spool_keeps_what_is_older_than_an_interval(newest: Environment, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    script = """
        import glob, os, time
        import wandb
        wandb.init(project="p", mode="disabled")
        wandb.log({"loss": 1})
        deadline = time.monotonic() + 240
        while not any('"loss"' in open(path).read() for path in glob.glob("spool/*.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os._exit(0)
    """
    url = f"http://127.0.0.1:{free_port()}/api/v1"
    newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": url, "PRIMUS_LENS_SPOOL_PATH": str(spool)})
    lines = [json.loads(line) for path in spool.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert lines[0]["version"] == 1
    assert [line["values"] for line in lines if line.get("record") == "step_metrics"] == [{"loss": 1}]


def test_a_receiver_that_comes_back_gets_everything(newest: Environment, tmp_path: Path) -> None:
    port = free_port()
    for number, spool in enumerate(("", str(tmp_path / "spool"))):
        process = newest.start(
            """
            import time
            import wandb
            wandb.init(project="p", mode="disabled")
            for step in range(100):
                wandb.log({"loss": step})
            time.sleep(0.8)
            print("ready", flush=True)
            time.sleep(2)
            wandb.log({"loss": 100})
            """,
            tmp_path,
            {"PRIMUS_LENS_API_BASE_URL": f"http://127.0.0.1:{port}/api/v1", "PRIMUS_LENS_SPOOL_PATH": spool},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with receiving(port=port) as receiver:
            _, errors = process.communicate(timeout=240)
            assert [value for _, _, value in receiver.points()] == list(range(101)), number
        assert errors == ""


HOUR = """
    import time
    real, clock, later = time.time, time.monotonic, [0.0]
    time.time, time.monotonic = lambda: real() + later[0], lambda: clock() + later[0]
    import wandb
    wandb.init(project="p", mode="disabled")
    for step in range(720):
        wandb.log({"loss": step})
        later[0] += 5.0                  # a row per five seconds, for an hour
        time.sleep(0.002)
    print("an hour later", flush=True)
    input()
    wandb.log({"loss": 720})
"""


@pytest.mark.parametrize("spool", [True, False])
def test_a_receiver_that_comes_back_after_an_hour(newest: Environment, tmp_path: Path, spool: bool) -> None:
    port = free_port()
    variables = {
        "PRIMUS_LENS_API_BASE_URL": f"http://127.0.0.1:{port}/api/v1",
        "PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "spool") if spool else "",
        "PRIMUS_LENS_FLUSH_INTERVAL_SECONDS": "0.05",
        "PRIMUS_LENS_QUEUE_BYTES": "65536",  # too little for an hour
    }
    process = newest.start(HOUR, tmp_path, variables, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "an hour later\n"
    with receiving(port=port) as receiver:
        _, errors = process.communicate("\n", timeout=240)
        arrived = [value for _, _, value in receiver.points()]
    away, *lines = errors.splitlines()
    assert f"http://127.0.0.1:{port}/api/v1 cannot be reached" in away
    if spool:
        assert (arrived, lines) == (list(range(721)), [])
    else:
        lost = 721 - len(arrived)
        assert 0 < lost < 721
        kept = next(step for step in range(721) if arrived[step] != step)  # the batch that was tried all the time
        assert arrived == [*range(kept), *range(kept + lost, 721)], "the oldest of the others make room"
        assert len(lines) == 1
        assert f"{lost} of 721 rows ({lost} points) did not reach" in lines[0]


def test_rows_logged_after_our_exit_handler_arrive(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import atexit
        import wandb
        atexit.register(lambda: run.log({"late": 2}))
        run = wandb.init(project="p", mode="disabled")
        run.log({"early": 1})
    """
    newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert receiver.points() == [(0, "early", 1), (1, "late", 2)]


def test_the_exit_waits_for_no_interval(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    variables = {"PRIMUS_LENS_FLUSH_INTERVAL_SECONDS": AN_HOUR, "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": AN_HOUR}
    newest.run(FIFTY_STEPS, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, **variables})
    assert [value for _, _, value in receiver.points()] == list(range(50))


def test_our_own_failures_stay_ours(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        from lens_hook import runtime, wandb_source
        run = wandb.init(project="p")
        wandb.log({"seen": 1})
        buffer = runtime.get_runtime().buffer
        whole = buffer.append_row

        def broken(*_):
            raise RuntimeError("a defect of the hook")

        buffer.append_row = broken
        for _ in range(3):
            wandb.log({"missed": 1})
        del buffer.append_row
        wandb.log({"seen": 2})
        print("the user's own line")
        wandb.finish()
    """
    done = each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert receiver.points() == [(0, "seen", 1), (4, "seen", 2)]
    lines = [line for line in done.stderr.splitlines() if "lens-hook" in line]
    assert len(lines) == 2
    assert "a row was missed: RuntimeError" in lines[0]
    assert "3 internal errors" in lines[1]
    logs = [path.read_text() for path in tmp_path.glob("wandb/*run-*/files/output.log")]
    assert not any("lens-hook" in log for log in logs), "our line is in the run's console log"
