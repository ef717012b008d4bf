"""The end of a process, as the hook reports it: its exit code, its last error, and ends that are no failure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.sources.wandb_hook import environments
from tests.plugins.sources.wandb_hook.environments import HOOK, Environment, write_script
from tests.plugins.sources.wandb_hook.receiver import Receiver
from tests.plugins.sources.wandb_hook.test_startup import python_of

# How a program ends, and what has to be known of it.
ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "well": ("pass", {}),
    "exit": ("sys.exit()", {}),
    "exit 0": ("sys.exit(0)", {}),
    "exit False": ("sys.exit(False)", {}),
    "exit 256": ("sys.exit(256)", {}),
    "exit 3": ("sys.exit(3)", {"exit_code": 3, "reason": "sys.exit(3)"}),
    "exit -1": ("sys.exit(-1)", {"exit_code": 255, "reason": "sys.exit(-1)"}),
    "exit of a signal": (
        "sys.exit(143)",
        {"exit_code": 143, "reason": "sys.exit(143)", "signal": "SIGTERM"},
    ),
    "text": ("sys.exit('no GPU here')", {"exit_code": 1, "reason": "no GPU here"}),
    "secret": ("sys.exit('bad key sk-0123456789abcdef0123')", {"exit_code": 1, "reason": "bad key ***"}),
    "builtin": ("exit(4)", {"exit_code": 4, "reason": "sys.exit(4)"}),
    "error": (
        "raise ValueError('boom')",
        {"exit_code": 1, "exception": "ValueError", "reason": "ValueError: boom"},
    ),
    "error without text": (
        "raise MemoryError",
        {"exit_code": 1, "exception": "MemoryError", "reason": "MemoryError"},
    ),
    "error of a package": (
        "json.loads('x')",
        {
            "exit_code": 1,
            "exception": "JSONDecodeError",
            "reason": "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        },
    ),
    "error whose text fails": (
        "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
        {"exit_code": 1, "exception": "Odd", "reason": "Odd: (its text cannot be read)"},
    ),
    "interrupt": (
        "raise KeyboardInterrupt",
        {"exit_code": 130, "signal": "SIGINT", "exception": "KeyboardInterrupt", "reason": "KeyboardInterrupt"},
    ),
    "caught": ("try: raise ValueError('boom')\nexcept ValueError: traceback.print_exc()", {}),
    "shown": ("try: raise ValueError('boom')\nexcept ValueError: sys.excepthook(*sys.exc_info())", {}),
    "caught exit": ("try: sys.exit(3)\nexcept SystemExit: pass", {}),
    "kept exit": ("try: sys.exit(3)\nexcept SystemExit as error: kept = error", {}),
    "caught deep": ("def f():\n    try: sys.exit(3)\n    except SystemExit: return\nf()", {}),
    "raised again": ("try: sys.exit(3)\nexcept SystemExit: raise", {"exit_code": 3, "reason": "sys.exit(3)"}),
    "finally": ("try: sys.exit(3)\nfinally: print()", {"exit_code": 3, "reason": "sys.exit(3)"}),
    "exit after an error": (
        "try: raise ValueError('boom')\nexcept ValueError as error: sys.exit(2)",
        {"exit_code": 2, "exception": "ValueError", "reason": "ValueError: boom"},
    ),
    "arguments": (
        "argparse.ArgumentParser().parse_args(['--no-such'])",
        {"exit_code": 2, "reason": "sys.exit(2)"},
    ),
    "thread": ("t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()", {}),
    "failing thread": ("t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", {}),
    # As IPython does, pytest, and code.InteractiveInterpreter.
    "a failed cell": ("code.InteractiveInterpreter().runsource('1 / 0')", {}),
}
HEAD = """
import argparse, atexit, code, json, sys, threading, traceback
from lens_hook import process_end
process_end.watch_exits()
process_end.watch_exits()
atexit.register(lambda: print("\\n" + json.dumps(process_end.of_this_process())))
"""


@pytest.mark.parametrize("version", ["", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_every_end_of_a_program_is_known(version: str, tmp_path: Path) -> None:
    python = python_of(version) if version else sys.executable
    if python is None:
        pytest.skip(f"does not apply: no Python {version} here")
    found = {}
    for name, (end, _) in ENDINGS.items():
        script = tmp_path / "script.py"
        script.write_text(HEAD + end + "\n")
        done = subprocess.run(
            [python, "-m", "script"] if len(name) % 2 else [python, str(script)],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HOOK)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found[name] = done.stdout.splitlines()[-1]
    assert {name: json.loads(line) for name, line in found.items()} == {
        name: details for name, (_, details) in ENDINGS.items()
    }


def ends(receiver: Receiver) -> list[tuple[str, Any, Any]]:
    """Type, exit code and reason of the events that tell an end."""
    events = [record for record in receiver.records("event") if record["type"] != "training_started"]
    return [(event["type"], event["details"].get("exit_code"), event["details"].get("reason")) for event in events]


PROCESS_ENDS = {
    "wandb.finish()": ("training_ended", 0, None),
    "wandb.finish(); sys.exit(0)": ("training_ended", 0, None),
    "wandb.finish(exit_code=2)": ("training_failed", 2, None),
    "sys.exit('text')": ("training_failed", 1, "text"),
    "1 / 0": ("training_failed", 1, "ZeroDivisionError: division by zero"),
    "try: 1 / 0\nexcept ZeroDivisionError: pass": ("training_ended", None, None),
    "with run: 1 / 0": ("training_failed", 1, "ZeroDivisionError: division by zero"),
}


@pytest.mark.parametrize("end", PROCESS_ENDS)
def test_the_end_of_a_process_is_told_once(
    each_wandb: Environment, receiver: Receiver, tmp_path: Path, end: str
) -> None:
    script = "import sys\nimport wandb\nrun = wandb.init(project='p')\nwandb.log({'loss': 1})\n" + end
    each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url}, check=False)
    assert [(kind, code or None, reason) for kind, code, reason in ends(receiver)] == [
        (PROCESS_ENDS[end][0], PROCESS_ENDS[end][1] or None, PROCESS_ENDS[end][2])
    ]


def test_a_process_that_fails_after_its_run(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = "import wandb\nwandb.init(project='p').log({'loss': 1})\nwandb.finish()\nraise OSError(28, 'disk full')"
    newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url}, check=False)
    assert [(kind, reason) for kind, _, reason in ends(receiver)] == [
        ("training_ended", None),
        ("training_failed", "OSError: [Errno 28] disk full"),
    ]


CHILDREN = """
    import multiprocessing, sys
    import wandb

    def work(how):
        run = wandb.init(project="p", id="child", mode="disabled")
        run.log({"loss": 1})
        if how == "error":
            raise RuntimeError("CUDA error: device-side assert")
        sys.exit({"exit": 7, "text": "text", "well": None}[how])

    if __name__ == "__main__":
        child = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(sys.argv[2],))
        child.start()
        child.join()
        print(child.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("error", ("training_failed", 1, "RuntimeError: CUDA error: device-side assert")),
        ("exit", ("training_failed", 7, "sys.exit(7)")),
        ("text", ("training_failed", 1, "text")),
        ("well", ("training_ended", None, None)),
    ],
)
def test_a_child_of_multiprocessing_tells_its_end(
    newest: Environment, receiver: Receiver, tmp_path: Path, method: str, how: str, told: tuple[str, Any, Any]
) -> None:
    script = write_script(CHILDREN, tmp_path)
    done = subprocess.run(
        [newest.python, str(script), method, how],
        env=newest.variables(tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) == (told[1] or 0)
    assert ends(receiver) == [told]


def test_a_forked_child_that_fails_in_its_parents_run(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import multiprocessing
        import wandb

        def work(run):
            run.log({"child": 1})
            raise KeyError("shard 3")

        run = wandb.init(project="p", mode="disabled")
        run.log({"parent": 1})
        child = multiprocessing.get_context("fork").Process(target=work, args=(run,))
        child.start()
        child.join()
    """
    newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert ends(receiver) == [("training_failed", 1, "KeyError: 'shard 3'"), ("training_ended", None, None)]


def test_a_writer_without_wandb_tells_its_end(
    torch_environment: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = """
        import sys
        import tensorboardX
        for name in ("train", "eval"):
            writer = tensorboardX.SummaryWriter(f"runs/{name}")
            writer.add_scalar("loss", 1.0, 1)
            writer.close()
        sys.exit(5)
    """
    torch_environment.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url}, check=False)
    (event,) = receiver.records("event")
    assert (event["type"], event["run_id"], event["data_source"]) == ("training_failed", "runs/train", "tensorflow")
    assert (event["details"]["exit_code"], event["details"]["reason"]) == (5, "sys.exit(5)")


NOTEBOOK = """
    import sys
    from jupyter_client.manager import start_new_kernel
    manager, client = start_new_kernel()
    for cell in ("import wandb\\nrun = wandb.init(project='p', mode='disabled')\\nrun.log({'loss': 1})",
                 "1 / 0", "import sys\\nsys.exit(3)", "run.log({'loss': 2})"):
        client.execute_interactive(cell, timeout=60)
    client.shutdown()
    manager.finish_shutdown()
"""


def test_a_notebook_whose_old_cell_failed_is_not_failed(receiver: Receiver, tmp_path: Path) -> None:
    notebook = environments.environment("notebook", environments.NOTEBOOK)
    notebook.run(NOTEBOOK, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert [value for _, _, value in receiver.points()] == [1, 2]
    assert ends(receiver) == [("training_ended", None, None)]
