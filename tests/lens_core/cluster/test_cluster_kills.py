"""Servers and daemons are killed and put to sleep at random: what was acknowledged is stored, each record once."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_fleet import Fleet, Senders, check_stored, kill_at_random

# The short form; `scripts/demo --cluster --seconds 600` is the endurance run.
SOAK_SECONDS = float(os.environ.get("LENS_SOAK_SECONDS", "8"))


@pytest.fixture
def fleet(tmp_path: Path, postgres_dsn: str) -> Iterator[Fleet]:
    started = Fleet(tmp_path, postgres_dsn)
    yield started
    started.end()


@pytest.mark.slow("three servers and three daemons are started, and killed for eight seconds")
def test_what_was_acknowledged_is_stored_once_whoever_is_killed(fleet: Fleet) -> None:
    with Senders(fleet) as sent:
        done = kill_at_random(fleet, SOAK_SECONDS, random.Random(7))
    assert len(done) > 1
    check_stored(fleet, sent)
