"""A job of two nodes that the real `dlrover-run` starts and trains, with Lens as its only master."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.running_lens import RunningLens
from tests.plugins.collectors.diagnosis.dlrover_world import dlrover_environment
from tests.plugins.sources.wandb_hook.environments import TORCH, environment, write_script

CONFIG = """
sources:
  dlrover_master: {{grpc_listen: "127.0.0.1:0"}}
sinks:
  out: {{type: jsonl, path: {path}}}
"""
TRAIN = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()}", flush=True)
dist.destroy_process_group()
"""


@contextmanager
def node(rank: int, port: int, script: Path, work: Path) -> Iterator[subprocess.Popen[str]]:
    """One node's agent, ended with the test."""
    torch, dlrover = environment("torch-2.13.0", TORCH), dlrover_environment()
    (packages,) = dlrover.directory.glob("lib/python*/site-packages")
    variables = {
        "PATH": f"{torch.directory}/bin:/usr/bin:/bin",
        "HOME": str(work),
        "PYTHONPATH": str(packages),
        "DLROVER_MASTER_ADDR": f"127.0.0.1:{port}",
        "NODE_ID": str(rank),
        "NODE_RANK": str(rank),
        "NODE_NUM": "2",
        "NODE_TYPE": "worker",
        "POD_IP": "127.0.0.1",
        "JOB_UID": "job-9",
        "LENS_RUN": "",
    }
    command = ["-m", "dlrover.trainer.torch.elastic_run", "--nnodes=2:2", "--nproc_per_node=1", "--monitor_interval=1"]
    process = subprocess.Popen(
        [torch.python, *command, str(script)],
        env=variables,
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(240)
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow("two real agents meet and train")
def test_two_nodes_find_each_other_and_train(tmp_path: Path) -> None:
    lens = RunningLens(tmp_path / "lens", CONFIG.format(path=tmp_path / "rows.jsonl")).start()
    try:
        script = write_script(TRAIN, tmp_path)
        listening = re.search(r"Listening for gRPC. port=(\d+)", lens.log.read_text())
        assert listening is not None
        port = int(listening.group(1))
        with node(0, port, script, tmp_path) as first, node(1, port, script, tmp_path) as second:
            printed = [process.communicate(timeout=240)[0] for process in (first, second)]
        assert [process.returncode for process in (first, second)] == [0, 0], printed
        assert [f"rank {rank} of 2: 3.0" in text for rank, text in enumerate(printed)] == [True, True], printed
    finally:
        lens.end()
