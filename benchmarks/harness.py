"""Shared parts of the scripts: figures, the machine, environments for peers, a daemon, a PostgreSQL."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres

CACHE = Path(os.environ.get("LENS_TEST_ENVIRONMENTS", "~/.cache/lens-test-environments")).expanduser()


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. `ratio` is the better divided by the worse in Lens' favour; `holds` None where there is no goal."""

    figure: str
    unit: str
    lens: float
    peer: float | None = None
    peer_name: str = ""
    ratio: float | None = None
    goal: str = ""
    holds: bool | None = None
    spread: str = ""


def options(description: str) -> argparse.Namespace:
    """The options of a script that has no others than all have."""
    return option_parser(description).parse_args()


def option_parser(description: str) -> argparse.ArgumentParser:
    """The options of every script: --quick (under a minute, smaller sizes) and --json."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object per figure on standard output")
    return parser


def report(figures: Sequence[Figure], *, as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        for figure in figures:
            print(msgspec.json.encode(figure).decode())
        return
    print(machine())
    for figure in figures:
        peer = f"  {figure.peer_name}: {figure.peer:,.4g}" if figure.peer is not None else ""
        ratio = f"  ratio {figure.ratio:.3g}" if figure.ratio is not None else ""
        goal = f"  goal {figure.goal}: {'holds' if figure.holds else 'DOES NOT HOLD'}" if figure.goal else ""
        spread = f"  ({figure.spread})" if figure.spread else ""
        print(f"{figure.figure:58} {figure.lens:12,.4g} {figure.unit}{spread}{peer}{ratio}{goal}")


def machine() -> str:
    """One line about where this was measured."""
    cpu: str = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), "unknown CPU")
    memory = float(psutil.virtual_memory().total / 2**30)
    return f"{os.cpu_count()} × {cpu}, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def spread_of(values: Sequence[float]) -> str:
    """Median with the smallest and largest, as text."""
    return f"{min(values):,.4g} to {max(values):,.4g} in {len(values)} runs" if len(values) > 1 else ""


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values are."""
    return (
        statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]
        if len(values) > 1
        else values[0]
    )


def peer_environment(name: str, packages: Sequence[str]) -> Path:
    """A virtual environment with a peer's packages, made once; its bin folder."""
    folder = CACHE / name
    done = folder / ".complete"
    if not done.exists() or done.read_text() != " ".join(packages):
        print(f"installing {' '.join(packages)} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "-q", "install", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True, stderr=subprocess.DEVNULL)
        done.write_text(" ".join(packages))
    return folder / "bin"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder on the disk (not in memory: fsync is part of what is measured)."""
    with tempfile.TemporaryDirectory(prefix="lens-benchmark-", dir="/var/tmp") as folder:
        yield Path(folder)


@contextmanager
def postgres(folder: Path) -> Iterator[Callable[[str], str]]:
    """A PostgreSQL with fsync on; the result makes a database, if there is none yet, and gives how to connect to it."""
    server = EmbeddedPostgres(
        folder / "postgres", logging.getLogger("benchmark"), shared_buffers=128 << 20, max_wal=2 << 30
    )
    loop = asyncio.new_event_loop()
    loop.run_until_complete(server.start())

    def database(name: str) -> str:
        import psycopg

        with psycopg.connect(server.dsn, autocommit=True) as connection:
            if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).rowcount:
                connection.execute(f"CREATE DATABASE {name}".encode())
        return str(server.dsn).replace("dbname=postgres", f"dbname={name}")

    try:
        yield database
    finally:
        loop.run_until_complete(server.stop())
        loop.close()


class Daemon:
    """A `lens up` as a child process."""

    def __init__(self, data_dir: Path, config: str | None = None, port: int = 0) -> None:
        listen = f"127.0.0.1:{port}"
        self._command = [sys.executable, "-m", "lens_core.cli", "up", "--announce-json", "--listen", listen]
        self._folder = data_dir.parent  # not that of a checkout, whose packages would come before those of PYTHONPATH
        self._command += ["--data-dir", str(data_dir), "--exit-with-parent", str(os.getpid())]
        if config is not None:
            file = data_dir.with_suffix(".yaml")
            file.write_text(config)
            self._command += ["--config", str(file)]
        self.url = ""
        self.ready_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Daemon:
        """Start it; `ready_seconds` is how long it took until it answered."""
        started = time.perf_counter()
        environment = {**os.environ, "LOG_LEVEL": "error"}
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, env=environment, cwd=self._folder)
        assert self._process.stdout is not None
        announced = self._process.stdout.readline()
        if not announced:
            raise SystemExit(f"the daemon ended with {self._process.wait()} before it answered; its message is above")
        self.url = json.loads(announced)["listening"]
        self.ready_seconds = time.perf_counter() - started
        return self

    def stop(self) -> float:
        """SIGTERM; the seconds until it was gone."""
        assert self._process is not None
        started = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        return time.perf_counter() - started

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self._process is not None
        return self._process.pid

    def rss_mib(self) -> float:
        """Resident memory of the daemon alone, without its database."""
        assert self._process is not None
        return float(psutil.Process(self._process.pid).memory_info().rss) / 2**20

    def cpu_seconds(self) -> float:
        """CPU time that the daemon alone has taken, without its database."""
        assert self._process is not None
        used = psutil.Process(self._process.pid).cpu_times()
        return float(used.user + used.system)

    def status(self) -> Any:
        """Return the answer of /api/v1/status."""
        return httpx.get(f"{self.url}/api/v1/status", timeout=30).json()

    def pending(self) -> int:
        """Records that no sink has stored yet."""
        return sum(sink["pending_records"] for pipeline in self.status()["pipelines"] for sink in pipeline["sinks"])
