"""The world of benchmarks/query.py: one PostgreSQL, a database with one run, another with many, a daemon on each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks.harness import Daemon, postgres
from benchmarks.query_data import load_run, make_blocks, runs_in

CONFIG = """sinks: {{store: {{type: postgresql, dsn: "{dsn}", blocks: {blocks}}}}}
server: {{listen: "127.0.0.1:0"}}
"""
_UNMEASURED = 5


class World:
    """Databases of runs of so many steps; what a folder has from before is used again."""

    def __init__(self, folder: Path, database: Callable[[str], str], *, steps: int, runs: int) -> None:
        self.folder = folder
        self.database = database
        self.steps = steps
        self.runs = runs
        self.dsn_alone = database("alone")
        self.dsn_among = database("among")

    def load(self, most_seconds: float) -> bool:
        """Load what is missing, run by run; false when the time was over before all was there."""
        ends = time.monotonic() + most_seconds
        for dsn, wanted in ((self.dsn_alone, 1), (self.dsn_among, self.runs)):
            with self.daemon(dsn):
                pass  # it has made the tables
            for number in range(runs_in(dsn), wanted):
                if time.monotonic() > ends:
                    return False
                load_run(dsn, f"run-{number}", self.steps)
                make_blocks(dsn)
            make_blocks(dsn)
        return True

    @contextmanager
    def emptied(self, name: str) -> Iterator[str]:
        """A database without anything, gone afterwards."""
        dsn = self.database(name)
        try:
            yield dsn
        finally:
            with psycopg.connect(self.dsn_alone, autocommit=True) as connection:
                connection.execute(f"drop database {name} with (force)".encode())

    @contextmanager
    def daemon(self, dsn: str) -> Iterator[Asking]:
        """A daemon on one of the databases; no blocks are made while it is asked."""
        data_dir = self.folder / f"lens_{'alone' if dsn == self.dsn_alone else 'among'}"
        daemon = Daemon(data_dir, CONFIG.format(dsn=dsn, blocks="false")).start()
        try:
            yield Asking(daemon)
        finally:
            daemon.stop()


@contextmanager
def world(folder: Path, *, steps: int, runs: int) -> Iterator[World]:
    """A world in a folder."""
    with postgres(folder) as database:
        yield World(folder, database, steps=steps, runs=runs)


class Asking:
    """One daemon's API."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._client = httpx.Client(base_url=daemon.url, timeout=120)

    def get(self, path: str, run: int = 0, **parameters: Any) -> httpx.Response:
        """A question about one of the runs."""
        return self._client.get(f"/api/v1/workloads/run-{run}/metrics/{path}", params=parameters).raise_for_status()

    def milliseconds(self, times: int, path: str, run: int = 0, **parameters: Any) -> list[float]:
        """How long the same question takes, asked again and again, the first few left out."""
        found = [self._one(path, run, parameters) for _ in range(times + _UNMEASURED)]
        return found[_UNMEASURED:]

    def _one(self, path: str, run: int, parameters: dict[str, Any]) -> float:
        started = time.perf_counter()
        self.get(path, run, **parameters)
        return (time.perf_counter() - started) * 1000

    def highest_rss_mib(self, work: Callable[[], Any]) -> float:
        """The daemon's resident memory at its highest while something is done."""
        done = threading.Event()
        seen = [self.daemon.rss_mib()]

        def look() -> None:
            while not done.wait(0.005):
                seen.append(self.daemon.rss_mib())

        looking = threading.Thread(target=look)
        looking.start()
        try:
            work()
        finally:
            done.set()
            looking.join()
        return max(*seen, self.daemon.rss_mib())
