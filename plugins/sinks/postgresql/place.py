"""The note in PostgreSQL of where a store's points are."""

from __future__ import annotations

from lens_core import LensError

from .identity import Connection


class PointsElsewhere(LensError):
    """The points are not where the settings say; the text says where they are."""


async def read_place(connection: Connection) -> str:
    """Return the ClickHouse that has the points; empty for PostgreSQL itself."""
    row = await (await connection.execute("select place from lens_place")).fetchone()
    return "" if row is None else str(row[0])


async def write_place(connection: Connection, place: str) -> None:
    """Note that a ClickHouse has the points from now on; rows are refused here."""
    await connection.execute("insert into lens_place (place) values (%s)", [place])
    await connection.execute(
        "create trigger lens_row_elsewhere before insert or update on lens_row"
        " for each statement execute function lens_refuse_rows()"
    )


async def read_store_id(connection: Connection) -> str:
    """Return the id of this store, which its tables in a ClickHouse have, too."""
    row = await (await connection.execute("select id from lens_store")).fetchone()
    assert row is not None  # a migration makes it
    return str(row[0])


async def rename_place(connection: Connection, place: str) -> None:
    """Note that the ClickHouse that has the points is reached under another address."""
    await connection.execute("update lens_place set place = %s where place <> %s", [place, place])


async def has_rows(connection: Connection) -> bool:
    """Whether PostgreSQL has rows of any stream."""
    row = await (await connection.execute("select exists (select from lens_row)")).fetchone()
    return row == (True,)


async def has_change_trigger(connection: Connection) -> bool:
    """Whether a move of the points has begun and not ended."""
    row = await (
        await connection.execute(
            "select exists (select from pg_trigger where tgname = 'lens_row_moving_insert'"
            " and tgrelid = 'lens_row'::regclass)"
        )
    ).fetchone()
    return row == (True,)


async def remove_rows(connection: Connection) -> None:
    """Remove the rows of before a move, and their blocks."""
    async with connection.transaction():
        await connection.execute("truncate lens_row, lens_block, lens_column")
        await connection.execute(
            "update lens_stream set blocked_rows = 0, blocked_step = null where blocked_step is not null"
        )
