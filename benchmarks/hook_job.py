"""The job that `benchmarks/hook.py` measures: one process, one variant, one JSON object on standard output.

Runs in an environment that has wandb and the variant's package; needs nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROW = {"loss": 0.5123, "lr": 1.5e-4, "grad_norm": 12.25, "tokens": 3.0, "elapsed_ms": 321.5}
PACE_SECONDS = 0.01
HOOK = Path(__file__).resolve().parents[1] / "plugins" / "sources" / "wandb_hook"


def switch_on(variant: str) -> None:
    """Do as a user of the variant does before importing wandb."""
    if variant.startswith("lens"):
        sys.path.insert(0, str(HOOK))
        import lens_hook

        lens_hook.arm()
    elif variant == "exporter":
        __import__("primus_lens_wandb_exporter.wandb_hook")
    elif variant == "swanlab":
        swanlab = __import__("swanlab")
        swanlab.sync_wandb(mode="offline", wandb_run=True)


def timed(log: Callable[[dict[str, float]], Any], count: int, pause: float) -> dict[str, float]:
    """Call `log` `count` times; medians and tails in microseconds."""
    clock = time.perf_counter
    taken: list[float] = []
    begun, used = clock(), time.process_time()
    for index in range(count):
        if pause:
            rest = begun + index * pause - clock()
            if rest > 0:
                time.sleep(rest)
        start = clock()
        log(dict(ROW))
        taken.append(clock() - start)
    total = clock() - begun
    if not pause:
        time.sleep(1.2)  # the worker's last round belongs to the burst too
    used = time.process_time() - used
    taken.sort()
    return {
        "median": taken[count // 2] * 1e6,
        "p99": taken[int(count * 0.99)] * 1e6,
        "mean": sum(taken) / count * 1e6,
        "wall": total / count * 1e6,
        "cpu": used / count * 1e6,
    }


def paired(log: Callable[[dict[str, float]], Any], count: int) -> dict[str, Any]:
    """At training pace, in one process, blocks of calls without and with the hook, in pairs (off on, on off, ...).

    Both kinds go through one more function, which calls wandb's own method or the hook around it, so that a switch
    leaves the interpreter's caches alone; off, the hook gets no rows. Wandb's own method is timed as well, in both. So
    there are two answers: `whole`, the call as the training loop sees it, which has all of the noise of wandb's own
    work, and `around`, what passed outside wandb's own method, which is ten times sharper but blind to what the hook's
    presence does to that method. Neither sees what is there in both kinds of block: the start, and the sleeping worker.
    """
    from lens_hook import runtime, wandb_source

    run_class: Any = sys.modules["wandb.sdk.wandb_run"].Run
    own_method = vars(run_class)["_log"]._lens_hook_original
    clock = time.perf_counter
    inside = [0.0, 0.0]

    def off(self: Any, *args: Any, **options: Any) -> None:
        inside[0] = clock()
        own_method(self, *args, **options)
        inside[1] = clock()

    ways = {False: off, True: wandb_source._logging(off)}
    way = off

    def through(self: Any, *args: Any, **options: Any) -> None:
        way(self, *args, **options)

    run_class._log = through
    taken: list[tuple[float, float]] = []
    for size, kind in block_plan(count):
        way = ways[kind]
        block = []
        for _ in range(size):
            time.sleep(PACE_SECONDS)
            start = clock()
            log(dict(ROW))
            whole = clock() - start
            block.append((whole * 1e6, (whole - inside[1] + inside[0]) * 1e6))
        taken.append(tuple(statistics.median(part) for part in zip(*block[1:], strict=True)))
    time.sleep(1.5)
    pairs = list(zip(taken[::2], taken[1::2], strict=True))
    ordered = [(second, first) if number % 2 else (first, second) for number, (first, second) in enumerate(pairs)]
    logged = runtime.get_runtime().buffer.counts.logged
    return {
        "whole": [on[0] - off[0] for off, on in ordered],
        "around": [on[1] - off[1] for off, on in ordered],
        "off": statistics.median(off[0] for off, _ in ordered),
        "worker": worker_seconds() * 1e6 / logged,
    }


def block_plan(count: int) -> Iterator[tuple[int, bool]]:
    """Blocks of about `count` calls together: pairs of one random length, off on, on off, off on, ..."""
    chance = random.Random(count)
    number = 0
    while count > 0:
        size = chance.randint(8, 20)
        for kind in (number % 2 == 1, number % 2 == 0):
            yield size, kind
        number, count = number + 1, count - 2 * size


def worker_seconds() -> float:
    """Processor time of the worker's thread."""
    (worker,) = (thread for thread in threading.enumerate() if thread.name == "lens-hook")
    return int(Path(f"/proc/self/task/{worker.native_id}/schedstat").read_text().split()[0]) / 1e9


def blocks(log: Callable[[dict[str, float]], Any], count: int) -> dict[str, Any]:
    """A burst with the hook on for every other block of calls: what the caller pays, and what the worker burns.

    The worker's time falls into blocks of both kinds, so it is read from its own clock and added in full.
    """
    from lens_hook import runtime

    buffer = runtime.get_runtime().buffer
    run_class: Any = sys.modules["wandb.sdk.wandb_run"].Run
    hooked = vars(run_class)["_log"]
    clock = time.perf_counter
    size = 100
    taken: dict[bool, list[float]] = {True: [], False: []}
    for number in range(count // size // 2 * 2):
        on = number % 2 == 0
        run_class._log = hooked if on else hooked._lens_hook_original
        start = clock()
        for _ in range(size):
            log(dict(ROW))
        taken[on].append((clock() - start) / size * 1e6)
    run_class._log = hooked
    time.sleep(1.5)
    caller = statistics.median(on - off for on, off in zip(taken[True], taken[False], strict=True))
    burnt = worker_seconds() * 1e6 / buffer.counts.logged
    return {"added": caller + burnt, "caller": caller, "worker": burnt, "off": statistics.median(taken[False])}


def bare_wrapper(count: int) -> dict[str, float]:
    """Lens' wrapper around nothing at all."""
    wandb = __import__("wandb")
    run = wandb.init(project="benchmark", mode="offline")
    from lens_hook import wandb_source

    def nothing(self: Any, data: Any, step: Any = None, commit: Any = None) -> None:
        self._local_step += 1

    wrapped = wandb_source._logging(nothing)
    timed(lambda row: wrapped(run, row), 2000, 0.0)
    time.sleep(1.5)
    # Below what fills the queue: an overflowing queue is another figure.
    full = timed(lambda row: wrapped(run, row), count, 0.0)
    empty = timed(lambda row: nothing(run, row), count, 0.0)
    return {name: full[name] - empty[name] for name in full}


def importing(variant: str) -> dict[str, float]:
    """The import of wandb, and the part of it that is spent in the hook."""
    spent: list[float] = []
    if variant == "lens":
        import lens_hook

        original = lens_hook.on_import

        def on_import(name: str, module: object) -> None:
            start = time.perf_counter()
            original(name, module)
            spent.append(time.perf_counter() - start)

        lens_hook.on_import = on_import
    begun = time.perf_counter()
    __import__("wandb")
    return {"ms": (time.perf_counter() - begun) * 1e3, "hook_ms": sum(spent) * 1e3}


def footprint() -> dict[str, float]:
    """Memory, threads and descriptors of a process that has logged for a while."""
    wandb = __import__("wandb")
    run = wandb.init(project="benchmark", mode="offline")
    for _ in range(3000):
        run.log(dict(ROW))
    time.sleep(1.5)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {
        "rss_mib": float(status["VmRSS"].split()[0]) / 1024,
        "threads": float(status["Threads"]),
        "descriptors": float(len(os.listdir("/proc/self/fd"))),
    }


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("variant")
    parser.add_argument("what", choices=["paced", "paired", "blocks", "burst", "wrapper", "footprint", "import"])
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    switch_on(options.variant)
    if options.what == "wrapper":
        result = bare_wrapper(options.count)
    elif options.what == "footprint":
        result = footprint()
    elif options.what == "import":
        result = importing(options.variant)
    else:
        wandb = __import__("wandb")
        wandb.init(project="benchmark", mode="offline")
        timed(wandb.log, 50, 0.0)
        if options.what in ("paired", "blocks"):
            result = {"paired": paired, "blocks": blocks}[options.what](wandb.log, options.count)
        else:
            result = timed(wandb.log, options.count, PACE_SECONDS if options.what == "paced" else 0.0)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
