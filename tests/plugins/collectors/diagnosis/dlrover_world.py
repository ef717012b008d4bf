"""A real DLRover master in a process and an environment of its own, on loopback alone, that says what it has stored."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.plugins.sources.wandb_hook.environments import DLROVER, Environment, environment, write_script
from tests.ports import free_port

# DLRover's servers listen on all addresses whatever they are told: they are held to loopback here.
_MASTER = """
import json, sys
import grpc, grpc._server, tornado.tcpserver
add = grpc._server._Server.add_insecure_port
grpc._server._Server.add_insecure_port = lambda self, address: add(self, "127.0.0.1:" + address.rsplit(":", 1)[1])
listen = tornado.tcpserver.TCPServer.listen
tornado.tcpserver.TCPServer.listen = lambda self, port, *a, **k: listen(self, port, "127.0.0.1")
from dlrover.python.common.global_context import Context
port, service = int(sys.argv[1]), sys.argv[2]
Context.singleton_instance().master_service_type = service
from dlrover.python.master.local_master import LocalJobMaster
from dlrover.python.scheduler.factory import new_job_args
arguments = new_job_args("local", "lens-test", "default")
arguments.initilize()
master = LocalJobMaster(port, arguments)
master.prepare()
master.pre_check()
print("ready", flush=True)
for line in sys.stdin:
    kind = line.strip()
    if kind == "hang":
        from dlrover.python.diagnosis.inferencechain.inferenceoperator.observer import check_training_hang_operator
        operator = check_training_hang_operator.CheckTrainingHangOperator(master.diagnosis_manager._data_manager)
        answer = operator.is_hang(master.diagnosis_manager._data_manager.get_data("XPU_TIMER_METRIC"))
    else:
        answer = [json.loads(data.to_json()) for data in master.diagnosis_manager._data_manager.get_data(kind)]
    print("answer " + json.dumps(answer), flush=True)
master.stop()
"""


class RealMaster:
    """One that runs; `stored` asks it for its reports of one type."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.address = address
        self._process = process

    def stored(self, kind: str) -> list[dict[str, Any]]:
        """The reports of a type, as DLRover writes them."""
        found: list[dict[str, Any]] = self._ask(kind)
        return found

    def is_hang(self) -> bool:
        """Return the verdict of DLRover's own rule on its XPU timer reports."""
        return bool(self._ask("hang"))

    def _ask(self, question: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return json.loads(_line(self._process, "answer "))


def dlrover_environment() -> Environment:
    """The environment with DLRover."""
    return environment("dlrover", DLROVER)


@contextmanager
def real_master(service: str, work: Path) -> Iterator[RealMaster]:
    """A master that speaks grpc or http."""
    port = free_port()
    made = dlrover_environment()
    with (work / "master.log").open("wb") as log:
        process = subprocess.Popen(
            [made.python, str(write_script(_MASTER, work)), str(port), service],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=work,
            env={"PATH": os.environ["PATH"], "HOME": str(work), "TMPDIR": str(work)},
        )
    try:
        _line(process, "ready")
        yield RealMaster(process, f"127.0.0.1:{port}")
    finally:
        process.kill()
        process.communicate(timeout=240)


def _line(process: subprocess.Popen[str], beginning: str) -> str:
    """The rest of the next line with this beginning; DLRover prints others."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return line[len(beginning) :]
    raise AssertionError(f"the master ended without {beginning!r}")
