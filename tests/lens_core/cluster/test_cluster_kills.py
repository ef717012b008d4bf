"""Servers and daemons are killed, put to sleep and upgraded: what was acknowledged is stored once, as by one daemon."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.cluster_fleet import (
    DAEMONS,
    LEASE_SECONDS,
    Fleet,
    Senders,
    check_like_one,
    check_stored,
    kill_at_random,
    owned_partitions,
)
from tests.durations import Stopwatch
from tests.end_to_end.running_lens import wait_for

# The short form; `scripts/demo --cluster --seconds 600` is the endurance run.
SOAK_SECONDS = float(os.environ.get("LENS_SOAK_SECONDS", "8"))


@pytest.fixture
def fleet(tmp_path: Path, postgres_dsn: str) -> Iterator[Fleet]:
    started = Fleet(tmp_path, postgres_dsn)
    yield started
    started.end()


@pytest.fixture
def other_dsn(postgres_server: str) -> Iterator[str]:
    """A second database, for the daemon that the cluster is compared with."""
    name = f"alone_{os.getpid()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
    yield make_conninfo(postgres_server, dbname=name)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)".encode())


@pytest.mark.slow("three servers and three daemons are started, and killed for eight seconds, then upgraded")
def test_what_was_acknowledged_is_stored_once_whoever_is_killed_or_upgraded(
    fleet: Fleet, other_dsn: str, tmp_path: Path
) -> None:
    with Senders(fleet) as sent:
        done = kill_at_random(fleet, SOAK_SECONDS, random.Random(7))
        assert len(done) > 1
        partitions = fleet.daemons[0].get("/status", scope="daemon")["shared"]["partitions"]
        for number in range(DAEMONS):  # one after the other, as a rolling upgrade does
            other = (number + 1) % DAEMONS
            wait_for(lambda other=other: owned_partitions(fleet, other) == partitions, 240, "every partition owned")  # type: ignore[misc]
            assert fleet.daemons[number].stop() == 0
            watch = Stopwatch()
            wait_for(lambda other=other: owned_partitions(fleet, other) == partitions, 240, "they are taken over")  # type: ignore[misc]
            assert watch.seconds() < 5 + LEASE_SECONDS
            fleet.daemons[number].start()
    check_stored(fleet, sent)
    points, events = check_like_one(fleet, sent, tmp_path, other_dsn)
    assert points > 20
    assert events > 3
