"""A Slurm of one node with four GPUs that are only files: Debian's slurmctld and slurmd, as root, on free ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.end_to_end.running_lens import wait_for
from tests.ports import free_port

_CONFIG = """
ClusterName=gpu
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:a100:4 State=UNKNOWN
TaskProlog={folder}/task_prolog
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


def is_missing() -> str:
    """Why no Slurm can run here; '' where it can."""
    return "" if shutil.which("slurmctld") and shutil.which("slurmd") and os.geteuid() == 0 else "needs slurm and root"


class RunningSlurm:
    """Both daemons, and the commands that users give."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = socket.gethostname()
        self.environ = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> RunningSlurm:
        """Start them and wait until the node takes jobs."""
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        self.prolog("#!/bin/sh\n")
        for number in range(4):
            (self.folder / f"gpu{number}").touch()
        text = _CONFIG.format(
            host=self.host,
            folder=self.folder,
            controller_port=free_port(),
            node_port=free_port(),
            cpus=os.cpu_count(),
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(f"NodeName={self.host} Name=gpu Type=a100 File={self.folder}/gpu[0-3]\n")
        for daemon in ("slurmctld", "slurmd"):
            with (self.folder / f"{daemon}.log").open("wb") as log:
                self._daemons.append(subprocess.Popen([daemon, "-D"], env=self.environ, stdout=log, stderr=log))
        wait_for(lambda: "idle" in self.run("sinfo", "--noheader", "-o", "%t", check=False), 240, "an idle node")
        return self

    def prolog(self, script: str) -> None:
        """The task prolog of Slurm; the task gets each `export NAME=VALUE` that it prints."""
        file = self.folder / "task_prolog"
        file.write_text(script)
        file.chmod(0o755)

    def run(self, *command: str, check: bool = True, **environ: str) -> str:
        """Return the output of a command; a failure has its message."""
        done = subprocess.run(
            command, env=self.environ | environ, cwd=self.folder, capture_output=True, text=True, timeout=240
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """The number of a job that was submitted by sbatch."""
        file = self.folder / f"job-{len(list(self.folder.iterdir()))}.sh"
        file.write_text(f"#!/bin/sh\n{script}\n")
        return self.run("sbatch", "--parsable", "--oversubscribe", *options, str(file)).strip()

    def states(self, job: str) -> Sequence[str]:
        """The states of a job's tasks."""
        return self.run("squeue", "--noheader", "-r", "-t", "all", "-j", job, "-o", "%T").split()

    def stop(self) -> None:
        """End the jobs and both daemons."""
        self.run("scancel", "--signal=KILL", "--full", "-u", "root", check=False)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(240)


@contextmanager
def slurm_in(folder: Path) -> Iterator[RunningSlurm]:
    """A Slurm that ends."""
    slurm = RunningSlurm(folder)
    try:
        yield slurm.start()
    finally:
        slurm.stop()
