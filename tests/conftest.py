from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import psycopg
import pytest
from lens_plugins.sinks.postgresql.embedded import EmbeddedPostgres
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lens_core.base.redaction import forget_all
from tests.databases import migrate_database
from tests.durations import Durations
from tests.end_to_end.running_lens import copy_database
from tests.generated import load_profile
from tests.selection import Selection
from tests.side_by_side import SideBySide, shared_folder
from tests.trust import one_authority, trust

_numbers = itertools.count(1)

# Nothing of these databases outlives the machine: nothing waits for the disk, logs have no zeros before they have
# entries, and the kernel copies the files of a template. A copy takes a seventh of the CPU time with all that.
_OF_PASSING_DATABASES = ("fsync = off", "full_page_writes = off", "wal_init_zero = off", "file_copy_method = clone")

# A skip that says so is about what this machine is; any other is a missing part, and in CI a failure.
DOES_NOT_APPLY = "does not apply"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options --quick and --all of scripts/test."""
    group = parser.getgroup("lens tests")
    group.addoption("--quick", action="store_true", help="only tests without servers and programs of their own")
    group.addoption("--night", action="store_true", help="with the tests that tests/night.yaml leaves to the night")


def pytest_configure(config: pytest.Config) -> None:
    """Tests may run in several processes, and Ctrl-C means something to what they start."""
    load_profile()
    for plugin in (SideBySide(config), Selection(), Durations()):
        config.pluginmanager.register(plugin)
    trust(one_authority(shared_folder()))
    # A shell that runs the tests in the background has them ignore it, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that is skipped for a missing part has failed."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if DOES_NOT_APPLY not in reason:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped for a missing part: {reason}"
    return report


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests() -> Iterator[None]:
    """Forget secrets after each test: a secret of one configuration may be an ordinary word in the next test."""
    yield
    forget_all()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real PostgreSQL for a process of tests (LENS_TEST_POSTGRES_DSN: that one); how to connect to it."""
    other = os.environ.get("LENS_TEST_POSTGRES_DSN")
    if other:
        yield other
        return
    directory: Path = tmp_path_factory.mktemp("postgresql") / "data"
    copy_database("empty", directory)
    server = EmbeddedPostgres(
        directory, logging.getLogger("tests.postgresql"), shared_buffers=64 << 20, max_wal=512 << 20
    )
    loop = asyncio.new_event_loop()
    loop.run_until_complete(server.start())
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        for setting in _OF_PASSING_DATABASES:
            connection.execute(f"alter system set {setting}".encode())
        connection.execute("select pg_reload_conf()")
    yield server.dsn
    loop.run_until_complete(server.stop())
    loop.close()


@pytest.fixture(scope="session")
def migrated_database(postgres_server: str) -> Iterator[str]:
    """The name of a database with the tables of a store, to be copied: that takes a tenth of making them."""
    with _fresh_database(postgres_server) as dsn:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(migrate_database(dsn))
        loop.close()
        yield str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def postgres_dsn(postgres_server: str, migrated_database: str) -> Iterator[str]:
    """A fresh database of the session's PostgreSQL, with the tables of a store; how to connect to it."""
    with _fresh_database(postgres_server, migrated_database) as dsn:
        yield dsn


@pytest.fixture
def empty_database(postgres_server: str) -> Iterator[str]:
    """A database of the session's PostgreSQL in which nothing is; how to connect to it."""
    with _fresh_database(postgres_server) as dsn:
        yield dsn


@contextlib.contextmanager
def _fresh_database(server: str, template: str = "template1") -> Iterator[str]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template} strategy file_copy".encode())
    yield make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)".encode())
