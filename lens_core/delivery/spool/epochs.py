"""Epochs: each opening of a spool numbers its batches under an identity of its own.

A sink that keeps its own position knows a spool by that identity. If a data directory is restored from a copy, or
used by two daemons, the batches that are written from then on have numbers which the sink knows from another
history; under another identity they are never taken for those.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Epoch(NamedTuple):
    """The batches from `first_batch` up to those of the next epoch, and the identity that sinks know them by."""

    first_batch: int
    identity: str


def begin_epoch(connection: sqlite3.Connection, spool_id: str) -> list[Epoch]:
    """Begin a new epoch behind all batches; returns those that still have batches, in order, the new one last.

    Batches of a Lens that knew no epochs are known by the spool's own id.
    """
    epochs = [Epoch(*row) for row in connection.execute("SELECT first_batch, identity FROM epochs")]
    oldest = connection.execute("SELECT min(id) FROM batches").fetchone()[0]
    if oldest is not None and not any(epoch.first_batch <= oldest for epoch in epochs):
        epochs.append(Epoch(0, spool_id))
    newest = Epoch(_last_number(connection) + 1, str(uuid.uuid4()))
    used = sorted(epoch for epoch in epochs if epoch.first_batch < newest.first_batch)
    kept = [epoch for epoch, after in pairwise([*used, newest]) if oldest is not None and oldest < after.first_batch]
    write_epochs(connection, [*kept, newest])
    return [*kept, newest]


def write_epochs(connection: sqlite3.Connection, epochs: Sequence[Epoch]) -> None:
    """Replace what the file says about epochs."""
    connection.execute("DELETE FROM epochs")
    connection.executemany("INSERT INTO epochs VALUES (?, ?)", epochs)


def _last_number(connection: sqlite3.Connection) -> int:
    """The highest number that a batch or a cursor of this file ever had."""
    numbers = connection.execute(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'batches'), 0),"
        " coalesce((SELECT max(id) FROM batches), 0), coalesce((SELECT max(batch) FROM cursors), 0)"
    ).fetchone()
    return max(int(number) for number in numbers)
