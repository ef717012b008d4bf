"""Tables that fit their terminal: what matters least goes first, and nothing is cut but names and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
# A column that shrinks keeps at least so much.
LEAST = 16


class Column(NamedTuple):
    """One column.

    `goes`: the one with the highest number is left out first, 0 never; `shrinks`: its texts may be cut, of one column
    of a table.
    """

    title: str
    right: bool = False
    goes: int = 0
    shrinks: bool = False


Cell = tuple[str, str]


def fitting_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> Table:
    """A table of (text, style) cells, at most so wide if leaving columns out and cutting texts can make it so."""
    from rich.table import Table
    from rich.text import Text

    kept = chosen(columns, rows, width)
    room = width - _sum(columns, rows, kept)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0), expand=False)
    for place in kept:
        column = columns[place]
        wide = _width(columns, rows, place)
        if column.shrinks:
            wide = min(wide, _least(column, wide) + max(0, room))
        table.add_column(column.title, justify="right" if column.right else "left", no_wrap=True, width=wide)
    for row in rows:
        table.add_row(*(Text(*row[place]) for place in kept))
    return table


def chosen(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """The places of the columns for which there is room; those without any text are left out too."""
    kept = [place for place in range(len(columns)) if not columns[place].goes or any(row[place][0] for row in rows)]
    while _sum(columns, rows, kept) > width:
        place = max(kept, key=lambda place: columns[place].goes)
        if not columns[place].goes:
            break
        kept.remove(place)
    return kept


def _sum(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], kept: Sequence[int]) -> int:
    least = [_least(columns[place], _width(columns, rows, place)) for place in kept]
    return sum(least) + GAP * max(0, len(kept) - 1)


def _least(column: Column, wide: int) -> int:
    return min(LEAST, wide) if column.shrinks else wide


def _width(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], place: int) -> int:
    from rich.cells import cell_len

    return max(cell_len(text) for text in (columns[place].title, *(row[place][0] for row in rows)))
