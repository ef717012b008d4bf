"""The plugin host, the configuration, and what the pipeline costs on top of its sinks.

`lens plugins` beside `datasette plugins` (both list plugins found by pluggy and entry points, in a process of their
own). `lens validate` of 500 lines with 20 mistakes. One pipeline with a spool on disk, five detectors and three sinks
(postgresql, jsonl, http), fed with batches of 1,000 rows of five metrics, beside the same three sinks called
directly with the same batches: wall time from the first batch until the last sink has everything, alternating, both
with the event loop and the memory settings of the daemon.

The slowest sink decides both, so that the difference is what delays it. With sinks that do nothing, the pipeline takes
3.0 ms of CPU a batch: 0.9 ms the spool's thread (packing and writing a batch, moving three cursors), 0.55 ms encoding,
0.5 ms decoding, 0.2 ms freeing records, the rest turns of the event loop. It gives about 1 ms of it back, because the
http sink sends what the spool has packed.

    python -m benchmarks.host [--quick] [--json]
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvloop
from lens_plugins.sinks.http import Http, HttpSettings
from lens_plugins.sinks.jsonl import Jsonl, JsonlSettings
from lens_plugins.sinks.postgresql import PostgreSQL
from lens_plugins.sinks.postgresql.settings import PostgreSQLSettings

from benchmarks.harness import Figure, options, peer_environment, postgres, report, spread_of, temporary_folder
from lens_core import Batch, BatchLimits, Delivered, Origin, Position, Record, Secret, Sink, StepMetrics
from lens_core.base.process import freeze_gc, keep_large_blocks
from lens_core.base.self_metrics import SelfMetrics
from lens_core.config.loading import load_config
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.pipeline.pipeline import Pipeline
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import HttpReceiver, make_context, until

ROWS = 1000
DETECTORS = ("megatron", "deepspeed", "lightning", "transformers", "torchtitan")
MISTAKES = 20


def commands(folder: Path, rounds: int) -> list[Figure]:
    """Return the times of the two commands, process start included."""
    peer = peer_environment("datasette", ["datasette"]) / "datasette"
    own = [sys.executable, "-m", "lens_core.cli"]
    seconds: dict[str, list[float]] = {"lens": [], "peer": [], "validate": []}
    file = folder / "lens.yaml"
    file.write_text("\n".join(wrong_file()))
    for _ in range(rounds):
        seconds["lens"].append(_timed([*own, "plugins"]))
        seconds["peer"].append(_timed([str(peer), "plugins"]))
        seconds["validate"].append(_timed([*own, "validate", str(file)], code=78))
    done = subprocess.run([*own, "validate", "--json", str(file)], capture_output=True, check=False)
    found = len(json.loads(done.stdout)["problems"])
    lens, datasette = statistics.median(seconds["lens"]), statistics.median(seconds["peer"])
    validate = statistics.median(seconds["validate"])
    return [
        Figure(
            figure=f"`lens plugins`, {len(PluginHost.load().plugins())} plugins",
            unit="s",
            lens=lens,
            peer=datasette,
            peer_name="datasette plugins",
            ratio=datasette / lens,
            goal="< 0.7",
            holds=lens < 0.7,
            spread=spread_of(seconds["lens"]),
        ),
        Figure(
            figure=f"`lens validate`, 500 lines, {found} of {MISTAKES} mistakes found",
            unit="s",
            lens=validate,
            goal="< 1, all found",
            holds=validate < 1 and found == MISTAKES,
            spread=spread_of(seconds["validate"]),
        ),
    ]


def _timed(command: list[str], code: int = 0) -> float:
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False)
    seconds = time.perf_counter() - started
    assert done.returncode == code, done.stderr.decode()
    return seconds


def wrong_file() -> Iterator[str]:
    """500 lines of sinks; each of the last 20 sinks has one mistake."""
    yield "sinks:"
    for number in range(124):
        wrong = number >= 124 - MISTAKES
        yield f"  sink{number}:"
        yield "    type: jsonl"
        yield f"    path: rows{number}.jsonl"
        yield "    keep_files: many" if wrong else "    keep_files: 3"
    yield from ("pipelines:", "  all: {}", "", "")


def batches(workload: str, count: int) -> list[list[Record]]:
    """Batches of rows, as the wandb hook sends them."""
    return [[_row(workload, batch * ROWS + row) for row in range(ROWS)] for batch in range(count)]


def _row(workload: str, step: int) -> StepMetrics:
    return StepMetrics(
        origin=Origin(workload_uid=workload, pod_name=f"{workload}-0", rank=0),
        data_source="wandb",
        run_id="run",
        session="1-a",
        row_step=step,
        event_time=1_700_000_000.0 + step,
        sequence=step + 1,
        values={f"train/metric_{number}": step * 0.37 + number for number in range(5)},
    )


async def _sinks(folder: Path, dsn: str, url: str, name: str) -> dict[str, Sink]:
    made: dict[str, Sink] = {
        "store": PostgreSQL(PostgreSQLSettings(dsn=Secret(dsn)), make_context("store", folder)),
        "file": Jsonl(JsonlSettings(path=str(folder / f"{name}.jsonl")), make_context("file", folder)),
        "web": Http(HttpSettings(url=url), make_context("web", folder)),
    }
    for sink in made.values():
        await sink.start()
    return made


async def _bare(sinks: dict[str, Sink], work: Sequence[list[Record]], name: str) -> float:
    started = time.perf_counter()
    await asyncio.gather(*(_feed(sink, key, work, name) for key, sink in sinks.items()))
    return time.perf_counter() - started


async def _feed(sink: Sink, key: str, work: Sequence[list[Record]], name: str) -> None:
    for number, records in enumerate(work):
        answer = await sink.send(
            Batch(
                records=records,
                start=Position(number, 0),
                end=Position(number + 1, 0),
                spool_id=name,
                pipeline="bare",
                sink=key,
            )
        )
        assert isinstance(answer, Delivered), answer


async def _piped(sinks: dict[str, Sink], work: Sequence[list[Record]], folder: Path, name: str) -> float:
    limits = BatchLimits(max_records=ROWS, max_wait_seconds=0.0)
    slots = [SinkSlot(name=key, sink=sink, limits=limits) for key, sink in sinks.items()]
    configured = load_config(None, PluginHost.load(), {"LENS_DATA_DIR": str(folder)}).detectors
    detectors = make_detectors({key: configured[key] for key in DETECTORS})
    metrics = SelfMetrics()
    processor = DetectorProcessor(detectors, metrics)
    pipeline = Pipeline("piped", Spool(folder / f"{name}.sqlite3"), slots, metrics=metrics, processor=processor)
    await pipeline.start()

    def is_done() -> bool:
        # Asked 200 times a second: not by the status, which takes stock of everything.
        return not any(pipeline.spool.pending(key).records for key in sinks)

    started = time.perf_counter()
    for records in work:
        await pipeline.submit(records)
    await until(is_done, "everything is delivered", seconds=300)
    seconds = time.perf_counter() - started
    await pipeline.stop()
    return seconds


async def pipeline_cost(folder: Path, database: Callable[[str], str], rounds: int, count: int) -> list[Figure]:
    """Wall time of the same batches through a pipeline and without one."""
    bare: list[float] = []
    piped: list[float] = []
    dsn = database("host")

    async with HttpReceiver(answer=lambda received: b'{"success": true, "accepted": 1}') as receiver:
        for number in range(rounds + 1):
            for kind in ("bare", "piped") if number % 2 else ("piped", "bare"):
                name = f"{kind}{number}"
                sinks = await _sinks(folder, dsn, receiver.url, name)
                work = batches(name, count)
                gc.collect()
                gc.freeze()  # that all batches are in memory beforehand is the benchmark's doing, not the pipeline's
                if kind == "bare":
                    seconds = await _bare(sinks, work, name)
                else:
                    seconds = await _piped(sinks, work, folder, name)
                gc.unfreeze()
                receiver.received.clear()
                for sink in sinks.values():
                    await sink.stop()
                if number:  # the first round warms everything up
                    (bare if kind == "bare" else piped).append(seconds / count * 1000)
    lens, peer = statistics.median(piped), statistics.median(bare)
    return [
        Figure(
            figure=f"{ROWS} rows through 5 detectors, a spool and 3 sinks",
            unit="ms",
            lens=lens,
            peer=peer,
            peer_name="the 3 sinks alone",
            ratio=peer / lens,
            goal="at most 15 % on top",
            holds=lens <= 1.15 * peer,
            spread=spread_of(piped),
        )
    ]


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__ or "")
    with temporary_folder() as folder, postgres(folder) as database:
        figures = commands(folder, 3 if chosen.quick else 9)
        rounds, count = (3, 20) if chosen.quick else (7, 60)
        keep_large_blocks()
        freeze_gc()
        figures += uvloop.run(pipeline_cost(folder, database, rounds, count))
        report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
