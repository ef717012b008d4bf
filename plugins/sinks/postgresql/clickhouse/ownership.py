"""Proves that the tables of a ClickHouse belong to a store.

Each table has two columns whose names have the store's id and which take no room. An insert names one of them, a read
or a removal the other. So a statement that reaches the ClickHouse of another store, or an empty one, fails there before
it does anything, whichever way it came: a changed address, a new volume behind the old one, a name of another host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from .client_errors import ForeignPoints
from .schema import FIND_SETTINGS, RANGE_TABLE, TABLE, create_statements

_READ = "of_store_"
_WRITE = "for_store_"
_TABLES = (TABLE, RANGE_TABLE)
_FIND_MARKS = (
    "select table, groupArray(name) from system.columns where database = currentDatabase()"
    f" and table in ('{TABLE}', '{RANGE_TABLE}') and (name = 'stream' or startsWith(name, '{_WRITE}')) group by table"
)
_WAITING = "nothing is written to it, and what comes waits in the spool"
Run: TypeAlias = Callable[[str], Awaitable[Sequence[Sequence[Any]]]]


class Ownership(NamedTuple):
    """The id of a store, and the ClickHouse (host, port, database) that PostgreSQL says has its points, if any does."""

    store_id: str
    place: str

    @property
    def read_column(self) -> str:
        """The column that a read of the store's tables names; it is always true."""
        return f"{_READ}{self.store_id}"

    @property
    def write_column(self) -> str:
        """The column that an insert into the store's tables names."""
        return f"{_WRITE}{self.store_id}"

    def columns(self) -> list[str]:
        """Both columns, as they are declared."""
        return [f"{self.read_column} UInt8 alias 1", f"{self.write_column} UInt8 ephemeral 1"]


async def create_tables(run: Run, owner: Ownership, here: str) -> None:
    """Make the tables of a store that has no points in a ClickHouse yet. Raises ForeignPoints."""
    found = await _find_marks(run)
    settings = [name for (name,) in await run(FIND_SETTINGS)]
    for table, statement in zip(_TABLES, create_statements(owner.columns(), settings), strict=True):
        if table not in found:
            await run(statement)
        elif not found[table]:
            if (await run(f"select count() from {table}"))[0][0]:
                raise ForeignPoints(_describe_foreign(here, "an unknown store", owner))
            await _mark(run, table, owner)
        # Another store may have made it at the same moment.
        _refuse_others(table, await _find_marks(run), owner, here)


async def verify_tables(run: Run, owner: Ownership, here: str) -> None:
    """See that the tables are those of a store that has its points here. Raises ForeignPoints."""
    found = await _find_marks(run)
    for table in _TABLES:
        if table not in found:
            known = f" ({owner.place})" if owner.place else ""
            raise ForeignPoints(
                f"the ClickHouse {here} has no points of this store: it is empty, or not the one that had them{known};"
                f" {_WAITING}. Give `points` the address of the right one, or restore its backup"
            )
        if not found[table]:  # of a Lens that gave tables no id
            if not owner.place:
                raise ForeignPoints(_describe_foreign(here, "an unknown store", owner))
            if here != owner.place:
                raise ForeignPoints(
                    f"whose points the ClickHouse {here} has is not known; {_WAITING}. Start once with the address"
                    f" {owner.place}, under which they were written"
                )
            await _mark(run, table, owner)
            found = await _find_marks(run)
        _refuse_others(table, found, owner, here)


async def _find_marks(run: Run) -> dict[str, set[str]]:
    """For each table that is there the ids of its stores: one, or none of an older Lens."""
    return {
        table: {name.removeprefix(_WRITE) for name in names if name.startswith(_WRITE)}
        for table, names in await run(_FIND_MARKS)
    }


async def _mark(run: Run, table: str, owner: Ownership) -> None:
    await run(f"alter table {table} {', '.join(f'add column if not exists {column}' for column in owner.columns())}")


def _refuse_others(table: str, found: Mapping[str, set[str]], owner: Ownership, here: str) -> None:
    others = found.get(table, set()) - {owner.store_id}
    if others:
        raise ForeignPoints(_describe_foreign(here, f"the store {', '.join(sorted(others))}", owner))


def _describe_foreign(here: str, whose: str, owner: Ownership) -> str:
    remedy = "give this one a database of its own"
    if owner.place:
        remedy = f"give `points` the address of the ClickHouse that has this store's points ({owner.place})"
    return (
        f"the ClickHouse {here} has points of another store: of {whose}, and this one is {owner.store_id}; {_WAITING}."
        f" To fix it, {remedy}"
    )
