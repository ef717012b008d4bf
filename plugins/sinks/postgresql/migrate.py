"""Numbered, forward-only migrations, run at start under a lock."""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec
import psycopg

from lens_core import LensError

# Any number will do, as long as every Lens takes the same: the lock is the database's, not a table's.
_LOCK = 0x4C454E53
_FILE_NAME = re.compile(r"^(\d{4})_(\w+)\.sql$")


class DatabaseTooNew(LensError):
    """The database was made by a newer Lens; nothing is touched."""


class Migration(msgspec.Struct, frozen=True, order=True):
    """One step of the schema."""

    number: int
    name: str
    sql: str


def migrations() -> list[Migration]:
    """The steps that this code knows, in order."""
    found = []
    for file in files(__package__).joinpath("migrations").iterdir():
        matched = _FILE_NAME.match(file.name)
        if matched:
            found.append(Migration(int(matched[1]), matched[2], file.read_text(encoding="utf-8")))
    return sorted(found)


async def migrate(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> int:
    """Bring the database to this code's state; returns how many steps that took.

    Several daemons may do this at one time: one works, the others wait. Raises DatabaseTooNew.
    """
    known = migrations()
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
        await connection.execute(
            "create table if not exists lens_migration"
            " (number integer primary key, name text not null, done_at timestamptz not null default now())"
        )
        rows = await (await connection.execute("select number from lens_migration")).fetchall()
        done = {int(str(number)) for (number,) in rows}
        newest = known[-1].number
        if done and max(done) > newest:
            raise DatabaseTooNew(
                f"the database is at migration {max(done)}, this Lens knows {newest}: it was made by a newer Lens"
            )
        if not done:
            await _refuse_foreign_tables(connection)
        missing = [step for step in known if step.number not in done]
        for step in missing:
            await connection.execute(step.sql.encode())
            await connection.execute(
                "insert into lens_migration (number, name) values (%s, %s)", [step.number, step.name]
            )
    return len(missing)


async def _refuse_foreign_tables(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
    """Raise LensError in a database of Primus Lens: its table has the name of one of our views."""
    cursor = await connection.execute(
        "select from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = current_schema() and c.relname = 'training_performance'"
    )
    if await cursor.fetchone() is not None:
        raise LensError(
            "the database has a table training_performance already, as those of Primus Lens have; give Lens a database "
            "of its own, then take over what is there with `lens db import --from primus-lens`"
        )
