"""Spools of older formats: what a Lens before this one left on the disk is delivered and replayed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from lens_core import BatchLimits, Event, Origin, Position, Record, StepMetrics
from lens_core.delivery.dead_letters import DeadLetters
from lens_core.delivery.sending.cursor import Unpacked
from lens_core.delivery.spool.file import FORMAT_VERSION
from lens_core.delivery.spool.spool import Spool
from lens_core.model.record_filter import EVERYTHING, Matcher

ALL = BatchLimits(max_records=1_000_000, max_bytes=1 << 30)
ORIGIN = Origin(workload_uid="w", pod_name="p")

# As format 1 was written: every record with its whole origin.
TABLES_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batches (id INTEGER PRIMARY KEY AUTOINCREMENT, created_at REAL NOT NULL, records INTEGER NOT NULL,
    bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, only_sink TEXT NOT NULL, body BLOB NOT NULL);
CREATE INDEX batches_only_sink ON batches (only_sink, id) WHERE only_sink <> '';
CREATE TABLE cursors (sink TEXT PRIMARY KEY, batch INTEGER NOT NULL, offset INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE dead_letters (id INTEGER PRIMARY KEY AUTOINCREMENT, sink TEXT NOT NULL, reason TEXT NOT NULL,
    created_at REAL NOT NULL, bytes INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX dead_letters_sink ON dead_letters (sink, id);
INSERT INTO meta VALUES ('format', '1'), ('spool_id', '2c21394a-a47d-4842-9ec2-83bbf388b105');
INSERT INTO cursors VALUES ('a', 0, 0);
"""
BATCH_1 = bytes.fromhex(
    "83a870726f6475636572b06c656e732d6167656e742f302e312e30ab72656365697665645f6174cb41d954fc40000000a77265636f726473"
    "9385a67265636f7264ac737465705f6d657472696373a66f726967696e82ac776f726b6c6f61645f756964a177a8706f645f6e616d65a170"
    "ab646174615f736f75726365a577616e6462a8726f775f7374657001a676616c75657381a46c6f7373cb3fe000000000000085a67265636f"
    "7264ac737465705f6d657472696373a66f726967696e82ac776f726b6c6f61645f756964a177a8706f645f6e616d65a170ab646174615f73"
    "6f75726365a577616e6462a8726f775f7374657002a676616c75657381a46c6f7373cb3ff000000000000082a67265636f7264a56576656e"
    "74a474797065a174"
)
LETTER_1 = bytes.fromhex(
    "83a870726f6475636572b06c656e732d6167656e742f302e312e30ab72656365697665645f6174cb41d954fc40000000a77265636f726473"
    "9185a67265636f7264ac737465705f6d657472696373a66f726967696e82ac776f726b6c6f61645f756964a177a8706f645f6e616d65a170"
    "ab646174615f736f75726365a577616e6462a8726f775f7374657009a676616c75657381a46c6f7373cb4012000000000000"
)
CHECKSUM_1 = 224988389


def row(step: int) -> StepMetrics:
    return StepMetrics(origin=ORIGIN, data_source="wandb", row_step=step, values={"loss": step / 2})


def write_format_1(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(TABLES_1)
    batch = (1, 1.7e9, 3, len(BATCH_1), CHECKSUM_1, "", BATCH_1)
    connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", batch)
    letter = (1, "a", "no", 1.7e9, len(LETTER_1), LETTER_1)
    connection.execute("INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?)", letter)
    connection.commit()
    connection.close()


async def records_for(spool: Spool, sink: str) -> list[Record]:
    records: list[Record] = []
    while (chunk := await spool.read_chunk(sink, ALL)) is not None:
        unpacked = Unpacked(chunk, Matcher(EVERYTHING))
        assert unpacked.unreadable == []
        records += unpacked.records
    return records


async def test_a_spool_of_format_1_is_delivered_and_its_dead_letters_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "old.spool"
    write_format_1(path)
    spool = Spool(path)
    await spool.open({"a": True})
    assert await DeadLetters(spool).replay_letters("a") == 1
    assert await records_for(spool, "a") == [row(1), row(2), Event(type="t"), row(9)]
    await spool.close()


async def test_sinks_know_its_batches_by_the_identity_that_it_had(tmp_path: Path) -> None:
    """A sink that keeps its own position would otherwise store again what it has."""
    path = tmp_path / "old.spool"
    write_format_1(path)
    spool = Spool(path)
    await spool.open({"a": True})
    assert spool.identity_at(Position(1, 0)) == "2c21394a-a47d-4842-9ec2-83bbf388b105"
    assert spool.identity_at(Position(2, 0)) not in ("", "2c21394a-a47d-4842-9ec2-83bbf388b105")
    await spool.close()


async def test_it_has_the_newest_format_from_then_on(tmp_path: Path) -> None:
    """So that an older Lens, which would not give the records of an envelope its origin, leaves it alone."""
    path = tmp_path / "old.spool"
    write_format_1(path)
    spool = Spool(path)
    await spool.open({"a": True})
    assert (
        await spool.run_in_reader(lambda connection: dict(connection.execute("SELECT key, value FROM meta").fetchall()))
    ) == {
        "format": str(FORMAT_VERSION),
        "spool_id": "2c21394a-a47d-4842-9ec2-83bbf388b105",
    }
    await spool.close()
