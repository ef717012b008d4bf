from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from lens_plugins.collectors.hook_spool import HookSpool, HookSpoolSettings

from lens_core import Context, LensError, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.pipeline.collecting import Collected, collect_all

WRITE = """
import os, sys, time
from lens_hook import spool
file = spool.create_spool(sys.argv[1], b'{"workload_uid":"w","rank":3}')
for step in range(int(sys.argv[2])):
    row = b'{"record":"step_metrics","data_source":"wandb","run_id":"r","row_step":%d,"values":{"a":1}}\\n'
    file.append_lines(row % step)
file.append_lines(b'{"record":"step_metrics","torn')
print("written", flush=True)
if len(sys.argv) > 3:
    sys.stdin.read()
os._exit(1)
"""


def collector(directory: Path, max_records: int = 5000) -> HookSpool:
    context = Context(name="h", logger=logging.getLogger("test"), data_dir=directory, metrics=SelfMetrics())
    return HookSpool(HookSpoolSettings(path=str(directory), max_records_per_run=max_records), context)


def leave(directory: Path, steps: int) -> None:
    """A training process that spools so many steps and dies."""
    subprocess.run([sys.executable, "-c", WRITE, str(directory), str(steps)], check=False, timeout=240)


class Taken:
    """Keeps the submitted records; `refuses` makes the gate refuse them."""

    def __init__(self) -> None:
        self.rows: list[StepMetrics] = []
        self.refuses = False

    async def __call__(self, found: Collected) -> None:
        if self.refuses:
            raise LensError("full")
        self.rows += [record for record in found.records if isinstance(record, StepMetrics)]


async def test_what_dead_processes_left_is_sent_once_in_pieces_and_removed(tmp_path: Path) -> None:
    leave(tmp_path, 25)
    leave(tmp_path, 3)
    taken = Taken()
    await collect_all(collector(tmp_path, max_records=10), 30, taken)
    assert sorted(row.row_step for row in taken.rows) == sorted([*range(25), *range(3)])
    assert {(row.origin.workload_uid, row.origin.rank, row.run_id) for row in taken.rows} == {("w", 3, "r")}
    assert list(tmp_path.glob("lens-hook-*")) == []


async def test_what_could_not_be_taken_comes_again(tmp_path: Path) -> None:
    leave(tmp_path, 5)
    taken = Taken()
    taken.refuses = True
    reader = collector(tmp_path)
    with pytest.raises(LensError):
        await collect_all(reader, 30, taken)
    taken.refuses = False
    await collect_all(reader, 30, taken)
    assert [row.row_step for row in taken.rows] == list(range(5))


async def test_a_file_whose_process_lives_is_left_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE, str(tmp_path), "4", "stay"]
    taken = Taken()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        await collect_all(collector(tmp_path), 30, taken)
        assert taken.rows == []
    await collect_all(collector(tmp_path), 30, taken)
    assert len(taken.rows) == 4


async def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LensError, match="no directory"):
        await collector(tmp_path / "none").check()
    assert (await collector(tmp_path / "none").collect()).records == []
