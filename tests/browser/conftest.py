from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, sync_playwright
from psycopg.conninfo import make_conninfo

from tests.browser.browsing import Watched, browsing, launch
from tests.browser.training import (
    rows,
    send_events,
    send_evidence,
    send_lines,
    send_measurements,
    send_ranks,
    send_rows,
    send_stacks,
)
from tests.end_to_end.running_lens import RunningLens

Browse = Callable[..., AbstractContextManager[Watched]]


@pytest.fixture(scope="module")
def browser(migrated_database: str) -> Iterator[Browser]:
    """One Chromium for a file of tests; every test has a profile of its own.

    Playwright has an event loop in this thread for as long as it lives: what needs one of its own (PostgreSQL) begins
    before it, and no test of another file may run meanwhile.
    """
    with sync_playwright() as playwright:
        found = launch(playwright)
        yield found
        found.close()


@pytest.fixture(scope="session")
def new_database(postgres_server: str, migrated_database: str) -> Callable[[str], str]:
    """Make a database of this name, with the tables of a store, that lasts for the session."""

    def make(name: str) -> str:
        name = f"{name}_{os.getpid()}"  # LENS_TEST_POSTGRES_DSN is one for all processes
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"create database {name} template {migrated_database}".encode())
        return make_conninfo(postgres_server, dbname=name)

    return make


@pytest.fixture(scope="session")
def lens(tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[str], str]) -> Iterator[RunningLens]:
    """A daemon with a few workloads, for tests that only look."""
    dsn = new_database("browser")
    # Nothing of what is filled in goes on: after a minute all of it would be stalled.
    config = f'sinks:\n  store: {{type: postgresql, dsn: "{dsn}"}}\n'
    config += "analyzers: {stalls: false, goodput: {price_per_gpu_hour: 2.5}}\n"
    daemon = RunningLens(tmp_path_factory.mktemp("browser") / "lens", config).start()
    fill(daemon)
    yield daemon
    daemon.end()


def fill(daemon: RunningLens) -> None:
    """One workload with everything, one that failed, one that hangs, one to compare with."""
    now = time.time()
    send_rows(daemon, "llama-70b", rows(600, more=16, now=now))
    send_rows(daemon, "llama-70b", rows(300, seed=2, now=now), run_id="second")
    send_evidence(daemon, "llama-70b")
    send_events(
        daemon,
        "llama-70b",
        [
            {"type": "training_started", "event_time": now - 600, "iteration": 0},
            {"type": "checkpoint_saved", "event_time": now - 300, "iteration": 300, "details": {"path": "/ckpt/300"}},
            {"type": "loss_not_finite", "event_time": now - 300, "iteration": 300},
        ],
    )
    send_rows(daemon, "gpt-small", rows(200, seed=3, now=now))
    send_evidence(daemon, "gpt-small", {"lr": 1e-3, "width": 768})
    send_ranks(daemon, "llama-70b", [30] * 100 + [21] + [30] * 27)
    for number in range(12):
        send_rows(daemon, "sweep", rows(100, seed=10 + number, now=now), run_id=f"trial-{number:02}")
    early = [{**row, "data": {"mem_usage": row["data"]["mem_usage"]}} for row in rows(100, now=now - 500)]
    send_rows(daemon, "two-phases", rows(100, seed=6, now=now), run_id="a-train")
    send_rows(daemon, "two-phases", early, run_id="z-prepare")  # began first, and has no loss
    send_rows(daemon, "vit-broken", rows(100, seed=4, now=now - 900))
    broken = {"type": "out_of_memory", "event_time": now - 899, "iteration": 99}
    pods = [
        {"workload_uid": "vit-broken", "pod_name": f"vit-{rank}", "node": "gpu-7", "rank": rank} for rank in range(8)
    ]
    send_events(daemon, "vit-broken", [{**broken, "origin": origin} for origin in pods])
    failure = ["with HF_TOKEN=hidden123", "Traceback (most recent call last):", "torch.OutOfMemoryError: CUDA"]
    send_lines(daemon, "vit-broken", *failure, rank=3, node="gpu-7")
    send_measurements(daemon, "gpu-7", now - 800)
    send_rows(daemon, "stuck", rows(100, seed=5, now=now - 1200))
    send_events(daemon, "stuck", [{"type": "stalled", "event_time": now - 1100, "iteration": 99}])
    send_stacks(daemon, "stuck", now)
    daemon.drained()


@pytest.fixture
def browse(browser: Browser, lens: RunningLens) -> Browse:
    """Open a fresh profile on the daemon that is only looked at, or on another one."""

    def opened(home: str | None = None, **options: Any) -> AbstractContextManager[Watched]:
        return browsing(browser, home or lens.url, **options)

    return opened


@pytest.fixture
def own_lens(tmp_path: Path, new_database: Callable[[str], str]) -> Iterator[Callable[..., RunningLens]]:
    """Make daemons that belong to the test, each on a database of its own."""
    made: list[RunningLens] = []

    def make(name: str, more: str = "", **start: Any) -> RunningLens:
        dsn = new_database(f"browser_{name}")
        config = f'sinks:\n  store: {{type: postgresql, dsn: "{dsn}"}}\n{more}'
        made.append(RunningLens(tmp_path / name, config).start(**start))
        return made[-1]

    yield make
    for daemon in made:
        daemon.end()
