from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.plugins.sinks.postgresql.support import running_store
from tests.plugins.sources.wandb_hook.environments import CHDB, environment

PASSWORD = "pa%25ss"  # as it stands in the address; what it means has a percent sign
_numbers = itertools.count()


class Engine:
    """The engine that a process of tests has, and the databases in it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def address(self, database: str) -> str:
        """The setting `points` for a database."""
        return f"clickhouse://lens:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str) -> str:
        """The answer to a statement, as text."""
        response = httpx.post(f"http://127.0.0.1:{self.port}/", content=statement, auth=("lens", "pa%ss"), timeout=60)
        response.raise_for_status()
        return response.text

    def set_faults(self, *faults: str) -> None:
        """The faults of the next inserts: "before", "after" or ""."""
        httpx.post(f"http://127.0.0.1:{self.port}/faults", json=faults).raise_for_status()


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """ClickHouse's engine behind HTTP, one for a process of tests."""
    python = environment("chdb", CHDB).python
    process = subprocess.Popen(
        [python, str(Path(__file__).parent / "engine.py"), str(tmp_path_factory.mktemp("clickhouse"))],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LENS_TEST_PASSWORD": "pa%ss"},
    )
    assert process.stdout is not None
    yield Engine(int(process.stdout.readline()))
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def points_address(engine: Engine) -> Iterator[str]:
    """A fresh database of the engine, as the setting `points`."""
    name = f"test_{next(_numbers)}"
    engine.run(f"create database {name}")
    engine.set_faults()
    yield engine.address(name)
    engine.run(f"drop database {name}")


@pytest.fixture
async def apart(tmp_path: Path, postgres_dsn: str, points_address: str) -> AsyncIterator[Any]:
    """A store on a fresh database, with its points in ClickHouse."""
    async with running_store(tmp_path, postgres_dsn, points=points_address) as started:
        yield started
