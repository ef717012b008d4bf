"""kill -9 of a process that takes and delivers at full speed: every acknowledged record is stored exactly once."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

# The sink keeps its rows and its position in one transaction; the parent hears of a row when the spool has it.
LENS = """
import asyncio, logging, sqlite3, sys
from pathlib import Path
from lens_core import BatchLimits, Context, Delivered, NoSettings, Origin, Position, Sink, StepMetrics
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.pipeline.pipeline import Pipeline
from lens_core.base.self_metrics import SelfMetrics

folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

class Table(Sink):
    name = "table"

    def __init__(self):
        super().__init__(NoSettings(), Context(name="t", logger=logging.getLogger(), data_dir=folder, metrics=None))
        self.db = sqlite3.connect(folder / "table.db", isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS rows (step INTEGER)")
        self.db.execute("CREATE TABLE IF NOT EXISTS position (spool TEXT PRIMARY KEY, batch INTEGER, offset INTEGER)")

    async def position(self, spool_id):
        found = self.db.execute("SELECT batch, offset FROM position WHERE spool = ?", (spool_id,)).fetchone()
        return Position(*found) if found else None

    async def send(self, batch):
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO rows VALUES (?)", [(row.row_step,) for row in batch.records])
        await asyncio.sleep(0)
        self.db.execute("INSERT OR REPLACE INTO position VALUES (?, ?, ?)", (batch.spool_id, *batch.end))
        self.db.execute("COMMIT")
        return Delivered()

def row(step):
    return StepMetrics(origin=Origin(pod_name="p"), data_source="wandb", row_step=step, values={"x": 1.0})

async def main():
    limits = BatchLimits(max_records=70, max_wait_seconds=0.001)
    slot = SinkSlot(name="table", sink=Table(), limits=limits)
    pipeline = Pipeline("p", Spool(folder / "p.spool"), [slot], metrics=SelfMetrics())
    await pipeline.start()
    for step in range(first, last, 5):
        await pipeline.submit([row(step + number) for number in range(5)])
        print(step, flush=True)
    while pipeline.pipeline_status().sinks[0].pending_records:
        await asyncio.sleep(0.005)
    await pipeline.stop()

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(3))
def test_every_acknowledged_record_is_stored_exactly_once(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    first, acknowledged = 0, set[int]()
    for _ in range(4):
        steps = run_and_kill(tmp_path, first, rng.randint(20, 150))
        acknowledged |= {step + number for step in steps for number in range(5)}
        # What was on its way when the process died was not acknowledged, and is not sent again here.
        first = max(steps) + 10
    command = [sys.executable, "-c", LENS, str(tmp_path), str(first), str(first)]
    subprocess.run(command, check=True, timeout=240)
    with sqlite3.connect(tmp_path / "table.db") as table:
        stored = [step for (step,) in table.execute("SELECT step FROM rows")]
    table.close()
    assert len(stored) == len(set(stored))
    assert acknowledged <= set(stored)
    assert len(set(stored) - acknowledged) <= 4 * 5
    assert stored == sorted(stored)


def run_and_kill(folder: Path, first: int, after: int) -> list[int]:
    command = [sys.executable, "-c", LENS, str(folder), str(first), str(first + 10_000_000)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(after)]
        child.send_signal(signal.SIGKILL)
        return said + [int(line) for line in child.stdout if line.endswith(b"\n")]
