"""Three NATS servers, three daemons and a PostgreSQL on this machine, faults, and a count of what was lost (nothing).

`scripts/demo --cluster` calls it. A daemon is killed while the chart of a job goes on. Then senders go round all
daemons while servers, daemons and parts of the database are killed or put to sleep at random; in the end what was
acknowledged is compared with what is stored. Its output is a log to keep: versions, options, and each line with its
second. If something is lost, it ends with 1 and leaves the folder with the logs of all daemons and servers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click
import psycopg
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres
from psycopg.conninfo import make_conninfo

sys.path.insert(0, str(Path(__file__).parents[1]))

from lens_core import __version__
from tests.cluster_fleet import Fleet, Senders, address_of, check_like_one, check_stored, kill_at_random
from tests.end_to_end.running_lens import wait_for


class Database:
    """A PostgreSQL of this run, whose end is awaited in a thread with an event loop."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = EmbeddedPostgres(
            folder / "postgresql", logging.getLogger("database"), shared_buffers=64 << 20, max_wal=256 << 20
        )
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(120)

    @property
    def dsn(self) -> str:
        """The address of the database."""
        return str(self._server.dsn)

    def create_database(self, name: str) -> str:
        """Make another database; returns its address."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"create database {name}".encode())
        return make_conninfo(self.dsn, dbname=name)

    @property
    def pid(self) -> int:
        """The process whose children may be killed."""
        assert self._server.pid is not None
        return int(self._server.pid)

    def stop(self) -> None:
        """End it."""
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)


def watch_chart(fleet: Fleet, seconds: float, note: Callable[[str], None]) -> None:
    """Kill a daemon and say how the chart of a job grows at the two others meanwhile, then start it again."""
    *others, killed = fleet.daemons
    wait_for(lambda: others[0].points("job", metrics="lm_loss"), 60, "the first points of the job")
    killed.kill()
    note(f"killed the daemon on {killed.url}/")
    for second in range(1, int(seconds) + 1):
        time.sleep(1.0)
        counts = " and ".join(str(len(one.points("job", metrics="lm_loss"))) for one in others)
        note(f"  after {second} s the chart of `job` has {counts} points at the two others")
    killed.start(address_of(killed))
    note(f"started it again, on {killed.url}/")


def run_cluster(folder: Path, seconds: float, seed: int, note: Callable[[str], None]) -> None:
    """Start everything, kill at random for so long, compare. Raises AssertionError that says what was lost."""
    database = Database(folder)
    fleet = Fleet(folder, database.dsn)
    try:
        for daemon in fleet.daemons:
            note(f"daemon on {daemon.url}/  (`lens cluster status --url {daemon.url}`)")
        note(f"the chart: {fleet.daemons[0].url}/#/workloads/job")
        with Senders(fleet) as sent:
            watch_chart(fleet, min(8.0, seconds), note)
            done: Counter[str] = Counter()
            ends, rng = time.monotonic() + seconds, random.Random(seed)
            while (left := ends - time.monotonic()) > 0:
                done.update(kill_at_random(fleet, min(10.0, left), rng, database.pid, keeps_addresses=True))
                faults = ", ".join(f"{kind} {count}" for kind, count in sorted(done.items()))
                lines = f"{len(sent.lines)} and {len(sent.scripted)} lines"
                note(f"acknowledged: {len(sent.rows)} rows, {lines}; faults: {faults}")
        check_stored(fleet, sent, 180.0)
        note(f"stored: all {len(sent.rows)} rows and {len(sent.lines)} lines, each once, in one attempt")
        points, events = check_like_one(fleet, sent, folder, database.create_database("alone"))
        note(f"as one daemon answers that got the same: {points} points with their attempts, {events} events")
    finally:
        fleet.end()
        database.stop()


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="How long something is killed.")
@click.option("--seed", default=1, show_default=True, help="The faults' order.")
def main(seconds: float, seed: int) -> None:
    """Run a cluster on this machine, kill parts of it, and compare what was acknowledged with what is stored."""
    began = time.monotonic()

    def note(text: str) -> None:
        click.echo(f"{time.monotonic() - began:6.1f} s  {text}")

    folder = Path(tempfile.mkdtemp(prefix="lens-cluster-"))
    system = f"Python {platform.python_version()}, {os.cpu_count()} processors"
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    note(f"Lens {__version__}, {system}, {started}, --seconds {seconds:g} --seed {seed}")
    try:
        run_cluster(folder, seconds, seed, note)
    except Exception as error:
        note(f"FAILED: {error or type(error).__name__}; the logs of all daemons and servers are in {folder}")
        if not isinstance(error, AssertionError):  # this script's own, or that of what it starts
            raise
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
