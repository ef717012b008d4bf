"""Scalars per second out of TensorBoard's event files: Lens' reader beside tensorboard's own, the same file.

The file has scalars as torch and tensorboardX write them (five tags a step). tensorboard reads with its
`EventFileLoader` (Python, without TensorFlow), once into the events themselves and once into an `EventAccumulator`, as
its server does. Then memory: a file of 1 GiB through the collector, resumed in the middle.

    python -m benchmarks.event_files [--quick] [--json]
"""

from __future__ import annotations

import json
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import Figure, options, peer_environment, report, spread_of, temporary_folder
from lens_core.plugin_api.protobuf import delimited, varint

TAGS = ("loss", "learning-rate", "grad-norm", "tokens-per-second", "loss-scale")

PEER = """
import json, sys, time
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
path, rounds, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
seconds, count = [], 0
for _ in range(rounds):
    started = time.perf_counter()
    if how == "loader":
        count = sum(len(event.summary.value) for event in EventFileLoader(path).Load())
    else:
        reader = EventAccumulator(path, size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        tags = reader.Tags()
        count = sum(len(reader.Scalars(tag)) for tag in tags["scalars"])
        count += sum(len(reader.Tensors(tag)) for tag in tags["tensors"])
    seconds.append(time.perf_counter() - started)
print(json.dumps({"seconds": seconds, "count": count}))
"""

OURS = """
import asyncio, json, resource, sys, time
from pathlib import Path
from lens_plugins.collectors.tensorboard import TensorBoard, TensorBoardSettings
from lens_core.testing import make_context

async def run(path, state, limit):
    collector = TensorBoard(TensorBoardSettings(paths=[path]), make_context("tb", Path(state)))
    await collector.start()
    count = 0
    while True:
        for row in await collector.collect():
            count += len(row.values)
        await collector.stored()
        if not collector.more or (limit and count >= limit):
            return count

rounds, limit, seconds, count = int(sys.argv[3]), int(sys.argv[4]), [], 0
for number in range(rounds):
    started = time.perf_counter()
    count = asyncio.run(run(sys.argv[1], f"{sys.argv[2]}/{number}", limit))
    seconds.append(time.perf_counter() - started)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "count": count, "peak_mib": peak}))
"""


def write_file(path: Path, scalars: int) -> None:
    """An event file as torch writes it, without torch: one scalar an event."""
    from lens_plugins.collectors.tensorboard.events import crc32c, masked

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=1 << 20) as file:
        for number in range(scalars):
            step, tag = divmod(number, len(TAGS))
            value = delimited(1, TAGS[tag].encode()) + b"\x15" + struct.pack("<f", number * 0.37)
            event = b"\x09" + struct.pack("<d", 1.7e9 + step) + b"\x10" + varint(step)
            event += delimited(5, delimited(1, value))
            length = struct.pack("<Q", len(event))
            file.write(length + struct.pack("<I", masked(crc32c(length))) + event)
            file.write(struct.pack("<I", masked(crc32c(event))))


def run(command: list[str]) -> dict[str, float | list[float]]:
    """Run a script and return its output."""
    found: dict[str, float | list[float]] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return found


def lens(path: Path, state: Path, rounds: int, limit: int = 0) -> dict[str, float | list[float]]:
    """Our collector in a process of its own."""
    return run([sys.executable, "-c", OURS, str(path), str(state), str(rounds), str(limit)])


def speed(folder: Path, *, quick: bool) -> list[Figure]:
    """Scalars per second, in turns."""
    scalars = 100_000 if quick else 500_000
    path = folder / "logs" / "events.out.tfevents.1700000000.host.1.0"
    write_file(path, scalars)
    python = str(peer_environment("tensorboard", ["tensorboard==2.21.0", "setuptools<81"]) / "python")
    ours: list[float] = []
    theirs: dict[str, list[float]] = {"loader": [], "accumulator": []}
    for number in range(1 if quick else 3):
        mine = lens(path.parent, folder / f"state-{number}", 2)
        check(mine["count"], scalars)
        ours += [scalars / seconds for seconds in rates(mine)]
        for how, found in theirs.items():
            peer = run([python, "-c", PEER, str(path), "1", how])
            check(peer["count"], scalars)
            found += [scalars / seconds for seconds in rates(peer)]
    rate = statistics.median(ours)
    return [
        Figure(
            figure="scalars read from an event file",
            unit="scalars/s",
            lens=rate,
            peer=(peer_rate := statistics.median(found)),
            peer_name=f"tensorboard 2.21 {'EventFileLoader' if how == 'loader' else 'EventAccumulator'}",
            ratio=rate / peer_rate,
            goal="≥ 5 × tensorboard",
            holds=rate >= 5 * peer_rate,
            spread=spread_of(ours),
        )
        for how, found in theirs.items()
    ]


def rates(found: dict[str, float | list[float]]) -> list[float]:
    """The seconds of each round."""
    seconds = found["seconds"]
    assert isinstance(seconds, list)
    return seconds


def check(count: float | list[float], expected: int) -> None:
    """Whoever is measured must have read everything."""
    if count != expected:
        raise RuntimeError(f"{count} scalars were read, {expected} are there")


def memory(folder: Path, *, quick: bool) -> list[Figure]:
    """A large file in bounded memory, stopped and resumed."""
    size = (64 if quick else 1024) * 2**20
    path = folder / "large" / "events.out.tfevents.1700000000.host.1.0"
    write_file(path, 1000)
    total = 1000 * size // path.stat().st_size
    write_file(path, total)
    started = time.perf_counter()
    first = lens(path.parent, folder / "large-state", 1, total // 2)
    second = lens(path.parent, folder / "large-state", 1)
    seconds = time.perf_counter() - started
    read = number(first["count"]) + number(second["count"])
    peak = max(number(first["peak_mib"]), number(second["peak_mib"]))
    name = f"{size >> 20} MiB of events"
    return [
        Figure(figure=f"peak memory over {name}", unit="MiB", lens=peak, goal="≤ 250", holds=peak <= 250),
        Figure(
            figure=f"read of {name}, stopped in the middle and resumed",
            unit="scalars",
            lens=read,
            goal=f"all {total:,}, each once",
            holds=read == total,
            spread=f"{seconds:.0f} s",
        ),
    ]


def number(value: float | list[float]) -> float:
    """A single number of an answer."""
    assert not isinstance(value, list)
    return value


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__ or "")
    with temporary_folder() as folder:
        figures = speed(folder, quick=chosen.quick) + memory(folder, quick=chosen.quick)
        report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
