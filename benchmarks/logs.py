"""Log lines per second: the parser alone beside mtail, `/logs` to the queue, and with more detectors than there are.

A mixed stream (5 % steps of six formats, 95 % of what training containers print otherwise, a quarter of that with ids
that never come again). The parser reads a file of plain lines in one process with everything that Lens looks for. mtail
(Debian package) reads the same file with one program, `logs.mtail`: for each of the six formats a pattern that finds
its lines, inside it a pattern for each field that Lens stores, and four events; it is not told to look for anything
else. A second, generated program looks for all formats that Lens knows, and only counts what it finds. Runs alternate.
Both are measured by the CPU time that they take, so that a second core (mtail's garbage collector) helps neither and
a busy machine harms neither; what mtail takes to start is subtracted.

`/logs` is a daemon with a spool on disk, posted to over two connections (as many as Fluent Bit's output uses), each
body acknowledged when it is safe: lines a second by the clock, and by the CPU time of the whole daemon. The collector
reads a large file while its memory is watched; that comes first (it came last, and once showed 15 MiB of growth that
were the other figures': alone it is 0.004 MiB).

    python -m benchmarks.logs [--quick] [--json]
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import httpx
import psutil
from lens_plugins.collectors.training_log import TrainingLog, TrainingLogSettings

from benchmarks.harness import Daemon, Figure, options, report, spread_of, temporary_folder
from benchmarks.logs_data import bodies, lines
from lens_core import Detector, LogFormat
from lens_core.config.loading import load_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines import Context, LineEngine
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import make_context

PROGRAM = Path(__file__).with_suffix(".mtail")
PARSER_GOAL, ROUTE_GOAL, MTAIL_GOAL = 300_000, 100_000, 3.0
CONNECTIONS = 2
FLAT_MIB = 8.0
PIECE_BYTES = 256 * 1024
CONFIG = """
sources: {{logs: {{}}}}
sinks: {{out: {{type: jsonl, path: {path}, filter: {{kinds: [step_metrics, event, detection]}}}}}}
pipelines: {{logs: {{from: [logs], to: [out]}}}}
"""


def detectors() -> list[Detector]:
    """All that are installed."""
    return make_detectors(load_config(None, PluginHost.load(), {}).detectors)


def more_detectors(count: int, noise: Sequence[str]) -> list[Detector]:
    """Make a number of detectors: the installed ones, or fewer, or made-up ones beside them.

    Those come first for whose words some of the lines have to be looked at: only the number differs.
    """
    installed = sorted(detectors(), key=lambda one: not _is_asked(one, noise))
    made = [_made_up(number, installed[0]) for number in range(max(0, count - len(installed)))]
    return [*installed[:count], *made]


def _is_asked(one: Detector, noise: Sequence[str]) -> bool:
    """Whether all words of something that it declares stand on some line."""
    engine = LineEngine([one])
    declared = [*engine.formats, *engine.events, *engine.marks]
    return any(item.words <= words for words in map(engine.words_of, noise) for item in declared)


def _made_up(number: int, like: Detector) -> Detector:
    """A detector of a framework that nobody has, with a format of its own."""
    declared = LogFormat(
        name="step", words=(f"word_{'x' * number}", "loss"), head=rf"\bword_{number}: (?P<iteration>\d+)"
    )
    kind = type(f"MadeUp{number}", (Detector,), {"name": f"made_up_{number}", "formats": (declared,)})
    made: Detector = kind(like.settings, like.context)
    return made


def parse(engine: LineEngine, file: Path) -> float:
    """CPU seconds to read a file and everything on it, in this process, by pieces as the daemon gets them."""
    steps = 0
    context = Context(skips_known=True)
    started = time.process_time()
    with file.open("rb") as source:
        rest = b""
        while piece := source.read(PIECE_BYTES):
            whole, _, rest = (rest + piece).rpartition(b"\n")
            texts = [line.decode() for line in whole.split(b"\n")]
            for index, candidates in engine.filter_lines(texts, context):
                for reading in engine.read_found(texts[index], candidates, context):
                    steps += reading.kind == "metric"
    seconds = time.process_time() - started
    assert steps, "nothing was read"
    return seconds


def mtail(folder: Path, file: Path, program: str) -> float:
    """CPU seconds of mtail for the same file, its start subtracted."""
    progs = folder / "progs"
    progs.mkdir(exist_ok=True)
    (progs / "formats.mtail").write_text(program)
    empty = folder / "empty.log"
    empty.touch()
    return _mtail(progs, file) - _mtail(progs, empty)


def mtail_program(known: Sequence[Detector]) -> str:
    """One program with the same formats: the benchmark's own with their fields, written by hand (`logs.mtail`), and
    every other declared format and event as a pattern that counts; what RE2 cannot do (looking around) is left out.
    """
    written = {"iteration", "step", "dictionary", "completed_step", "learning_rate"}
    parts = [PROGRAM.read_text(), "counter seen by kind\n"]
    for detector in known:
        for form in detector.formats:
            if form.name not in written:
                parts.append(_counting(form.head, f"{detector.name}.{form.name}"))
        for event in detector.events:
            parts.append(_counting(event.pattern, f"{detector.name}.{event.type}"))
    return "".join(parts)


def _counting(pattern: str, name: str) -> str:
    plain = without_looking_around(pattern).replace("/", "\\/")
    return f'/{plain}/ {{\n  seen["{name}"]++\n}}\n'


def without_looking_around(pattern: str) -> str:
    """The pattern without its lookaheads and lookbehinds, which RE2 does not have."""
    out, index = "", 0
    while index < len(pattern):
        if pattern[index] == "\\":
            out, index = out + pattern[index : index + 2], index + 2
        elif pattern.startswith(("(?=", "(?!", "(?<=", "(?<!"), index):
            index = _end_of_group(pattern, index)
        else:
            out, index = out + pattern[index], index + 1
    return out


def _end_of_group(pattern: str, index: int) -> int:
    depth, in_class = 0, False
    while True:
        letter = pattern[index]
        if letter == "\\":
            index += 1
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
        else:
            depth += (letter == "(") - (letter == ")")
        index += 1
        if not depth:
            return index


def _mtail(progs: Path, file: Path) -> float:
    command = ["mtail", "--one_shot", "--progs", str(progs), "--logs", str(file), "--port", "0", "--logtostderr"]
    before = _of_children()
    environment = {**os.environ, "GOMAXPROCS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return _of_children() - before


def _of_children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parser_figures(folder: Path, count: int, rounds: int) -> list[Figure]:
    """The parser beside mtail: with the fields of the benchmark's six formats, and with all formats that Lens reads."""
    file, part = folder / "mixed.log", folder / "part.log"
    file.write_text("".join(f"{line}\n" for line in lines(count)))
    part.write_text("".join(f"{line}\n" for line in lines(count // 50)))  # mtail is slow with all formats
    known = detectors()
    engine = LineEngine(known)
    parse(engine, file)
    few, every = PROGRAM.read_text(), mtail_program(known)
    rates: dict[str, list[float]] = {"lens": [], "six": [], "all": []}
    for _ in range(rounds):
        rates["lens"].append(count / parse(engine, file))
        if shutil.which("mtail"):
            rates["six"].append(count / mtail(folder, file, few))
            rates["all"].append(count // 50 / mtail(folder, part, every))
    rate = statistics.median(rates["lens"])
    alone = Figure(
        figure="parser alone, 5 % steps, one core (CPU time)",
        unit="lines/s",
        lens=rate,
        goal=f"≥ {PARSER_GOAL:,}",
        holds=rate >= PARSER_GOAL,
        spread=spread_of(rates["lens"]),
    )
    if not rates["six"]:
        print("mtail is not installed: apt-get install mtail", file=sys.stderr)
        return [alone]
    return [
        alone,
        _beside_mtail(
            "parser (all formats) beside mtail with the fields of the file's six", rate, rates["six"], MTAIL_GOAL
        ),
        _beside_mtail("parser (all formats) beside mtail that counts all formats", rate, rates["all"]),
    ]


def _beside_mtail(figure: str, rate: float, peer: Sequence[float], goal: float | None = None) -> Figure:
    other = statistics.median(peer)
    return Figure(
        figure=figure,
        unit="lines/s",
        lens=rate,
        peer=other,
        peer_name="mtail",
        ratio=rate / other,
        goal=f"≥ {goal:g} ×" if goal is not None else "",
        holds=rate / other >= goal if goal is not None else None,
        spread=spread_of(peer),
    )


def growth_figures(folder: Path, rounds: int) -> list[Figure]:
    """The cost of a line with 5, 20 and 80 detectors; only lines of nobody."""
    file = folder / "noise.log"
    everything = LineEngine(detectors())
    noise = [line for line in lines(200_000) if not everything.read_line(line)]
    file.write_text("".join(f"{line}\n" for line in noise) + " iteration 1/ 2 | lm loss: 1.0 |\n")
    rates: dict[int, list[float]] = {5: [], 20: [], 80: []}
    engines = {number: LineEngine([*more_detectors(number, noise[:2000]), *_megatron()]) for number in rates}
    for _ in range(rounds):
        for number, engine in engines.items():
            rates[number].append(parse(engine, file) / len(noise) * 1e6)
    first = statistics.median(rates[5])
    return [
        Figure(
            figure=f"a line that is no step, {number} detectors",
            unit="µs",
            lens=statistics.median(values),
            peer=first if number != 5 else None,
            peer_name="5 detectors" if number != 5 else "",
            ratio=statistics.median(values) / first if number != 5 else None,
            spread=spread_of(values),
        )
        for number, values in rates.items()
    ]


def _megatron() -> list[Detector]:
    return [detector for detector in detectors() if detector.name == "megatron"]


def route_figures(folder: Path, count: int) -> list[Figure]:
    """`/logs` to the queue: bodies of 2,000 lines, each acknowledged; by the clock, and by the daemon's CPU time."""
    sent = [body for body, _ in bodies(count, 2000)]
    daemon = Daemon(folder / "daemon", CONFIG.format(path=folder / "rows.jsonl")).start()
    rates, of_cpu = [], []
    try:
        with (
            httpx.Client(timeout=60, headers={"content-type": "application/json"}) as client,
            ThreadPoolExecutor(CONNECTIONS) as pool,
        ):
            _post(client, daemon.url, sent[0])
            for _ in range(3):
                started, used = time.perf_counter(), daemon.cpu_seconds()
                list(pool.map(_post, repeat(client), repeat(daemon.url), sent))
                rates.append(count / (time.perf_counter() - started))
                of_cpu.append(count / (daemon.cpu_seconds() - used))
    finally:
        daemon.stop()
    measured = {"": rates, ", a second of the daemon's CPU": of_cpu}
    return [
        Figure(
            figure=f"/logs to the queue, kubernetes envelopes{how}",
            unit="lines/s",
            lens=statistics.median(values),
            goal=f"≥ {ROUTE_GOAL:,}",
            holds=statistics.median(values) >= ROUTE_GOAL,
            spread=spread_of(values),
        )
        for how, values in measured.items()
    ]


def _post(client: httpx.Client, url: str, body: bytes) -> None:
    client.post(f"{url}/logs", content=body).raise_for_status()


def collector_figure(folder: Path, mebibytes: int) -> Figure:
    """Return the growth of memory while the collector reads a large file."""
    file = folder / "large.log"
    block = "".join(f"{line}\n" for line in lines(10_000)).encode()
    with file.open("wb") as target:
        while target.tell() < mebibytes << 20:
            target.write(block)
    sizes = asyncio.run(_collect(folder, file))
    half = len(sizes) // 2
    growth = max(sizes[half:]) - max(sizes[:half])
    return Figure(
        figure=f"growth of memory in the second half of a file of {mebibytes} MiB",
        unit="MiB",
        lens=growth,
        goal=f"≤ {FLAT_MIB:g} MiB",
        holds=growth <= FLAT_MIB,
    )


async def _collect(folder: Path, file: Path) -> Sequence[float]:
    collector = TrainingLog(TrainingLogSettings(paths=(str(file),)), make_context("follow", folder / "state"))
    await collector.start()
    process, sizes = psutil.Process(), []
    while await collector.collect():
        await collector.stored()
        sizes.append(process.memory_info().rss / 2**20)
    await collector.stop()
    return sizes


def main() -> None:
    """Measure and report."""
    chosen = options(__doc__ or "")
    count = 200_000 if chosen.quick else 1_000_000
    with temporary_folder() as folder:
        # First, in a small process: what the others leave to the allocator is not the collector's.
        memory = collector_figure(folder, 512 if chosen.quick else 1024)
        figures = parser_figures(folder, count, 3 if chosen.quick else 7)
        figures += growth_figures(folder, 3 if chosen.quick else 5)
        figures += route_figures(folder, count // 2)
        figures.append(memory)
    report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
