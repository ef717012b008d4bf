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
from psycopg.conninfo import conninfo_to_dict

from benchmarks.harness import Daemon, postgres
from benchmarks.query_data import METRICS, load_run, make_blocks

CONFIG = """sinks: {{store: {{type: postgresql, dsn: "{dsn}", blocks: {blocks}}}}}
server: {{listen: "127.0.0.1:0"}}
"""
_UNMEASURED = 5
_METRICS_OF_LONG = 8


class World:
    """Databases of runs of so many steps; what a folder has from before is used again."""

    def __init__(
        self, folder: Path, database: Callable[[str], str], *, steps: int, runs: int, loading_seconds: float
    ) -> None:
        self._loading_seconds = loading_seconds
        self.folder = folder
        self.database = database
        self.steps = steps
        self.runs = runs
        self.dsn_alone = database("alone")
        self.dsn_among = database("among")
        self.dsn_long = database("long")

    def load(self) -> bool:
        """Load what is missing, run by run; false when the time was over before all was there."""
        ends = time.monotonic() + self._loading_seconds
        return all(
            self._load(dsn, dict.fromkeys(range(wanted), self.steps), METRICS, ends)
            for dsn, wanted in ((self.dsn_alone, 1), (self.dsn_among, self.runs))
        )

    def load_long(self) -> bool:
        """The same for a database with run 0 and, as run 1, one of ten times as many steps; fewer metrics in both."""
        runs = {0: self.steps, 1: 10 * self.steps}
        return self._load(self.dsn_long, runs, _METRICS_OF_LONG, time.monotonic() + self._loading_seconds)

    def _load(self, dsn: str, steps_of: dict[int, int], metrics: int, ends: float) -> bool:
        with self.daemon(dsn):
            pass  # it has made the tables
        for number, steps in steps_of.items():
            if not load_run(dsn, f"run-{number}", steps, metrics=range(metrics), ends=ends):
                return False
            if not make_blocks(dsn, ends):
                return False
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
        data_dir = self.folder / f"lens_{conninfo_to_dict(dsn)['dbname']}"
        daemon = Daemon(data_dir, CONFIG.format(dsn=dsn, blocks="false")).start()
        try:
            yield Asking(daemon)
        finally:
            daemon.stop()


@contextmanager
def world(folder: Path, *, steps: int, runs: int, loading_seconds: float) -> Iterator[World]:
    """A world in a folder; loading gives up after so many seconds."""
    with postgres(folder) as database:
        yield World(folder, database, steps=steps, runs=runs, loading_seconds=loading_seconds)


class Asking:
    """One daemon's API."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._client = httpx.Client(base_url=daemon.url, timeout=120)

    def get(self, path: str, run: int = 0, **parameters: Any) -> httpx.Response:
        """A question about one of the runs."""
        return self._client.get(f"/api/v1/workloads/run-{run}/metrics/{path}", params=parameters).raise_for_status()

    def milliseconds(self, times: int, path: str, run: int = 0, **parameters: Any) -> list[float]:
        """Time the same question, asked repeatedly, the first few left out."""
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
