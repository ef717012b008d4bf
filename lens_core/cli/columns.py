"""Tables in the terminal: columns, and counts that add up.

Counts of the records that a component received, and of their outcomes; the figures add up.

In every row `in + derived = out + filtered + refused + dropped + merged + pending`; `dead` are those of the refused
that are kept as dead letters now, `lost` are all that nobody can bring back: dropped, or discarded dead letters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .wording import ago, in_locale, is_ascii_only, plain

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
# A column that shrinks keeps at least so much, if it does not say itself.
LEAST = 14


class Column(NamedTuple):
    """One column.

    `goes`: the one with the highest number is left out first, 0 never; `shrinks`: its texts may be cut, to
    `least` letters. Several such columns share the room that there is.
    """

    title: str
    right: bool = False
    goes: int = 0
    shrinks: bool = False
    least: int = LEAST


Cell = tuple[str, str]


def fitting_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> Table:
    """A table of (text, style) cells, at most so wide if leaving columns out and cutting texts can make it so."""
    from rich.table import Table
    from rich.text import Text

    rows = [[(in_locale(text), style) for text, style in row] for row in rows]
    kept = chosen(columns, rows, width)
    room = width - _sum(columns, rows, kept)
    shrinking = sum(columns[place].shrinks for place in kept)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0), expand=False)
    for place in kept:
        column = columns[place]
        wide = _width(columns, rows, place)
        if column.shrinks:
            least = _least(column, wide)
            wide = min(wide, least + max(0, room) // shrinking)
            room, shrinking = room - (wide - least), shrinking - 1
        justify: Literal["left", "right"] = "right" if column.right else "left"
        cut: Literal["crop", "ellipsis"] = "crop" if is_ascii_only() else "ellipsis"
        table.add_column(column.title, justify=justify, no_wrap=True, width=wide, overflow=cut)
    widths = [column.width for column in table.columns]
    for row in rows:
        # Cut here and not by the table, which knows neither words nor terminals without other letters.
        cells = [(row[place], width) for place, width in zip(kept, widths, strict=True)]
        table.add_row(*(Text(_fit(text, width), style) for (text, style), width in cells))
    return table


def _fit(text: str, width: int | None) -> str:
    from rich.cells import cell_len

    return text if width is None or cell_len(text) <= width else plain(text, width)


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
    return min(column.least, wide) if column.shrinks else wide


def _width(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], place: int) -> int:
    from rich.cells import cell_len

    return max(cell_len(text) for text in (columns[place].title, *(row[place][0] for row in rows)))


Counts = Mapping[str, int]

# Left out where they are 0 in every row; never for want of room, because the others would not add up then.
RARE = ("derived", "filtered", "refused", "dropped", "merged", "pending", "dead", "lost")


def source_counts(source: Mapping[str, Any]) -> Counts:
    """The figures of a source or collector."""
    return {
        "in": source["received"],
        "out": source["accepted"],
        "filtered": source["filtered"],
        "refused": sum(source["rejected"].values()),
    }


def pipeline_counts(pipeline: Mapping[str, Any]) -> Counts:
    """The figures of a pipeline, between its sources and its spool."""
    ledger = pipeline["ledger"]
    dropped = sum(ledger["dropped"].values())
    return {
        "in": ledger["received"],
        "out": ledger["accepted"],
        "filtered": ledger["filtered"],
        "dropped": dropped,
        "derived": ledger["derived"],
        "merged": ledger["merged"],
        "lost": dropped,
    }


def sink_counts(sink: Mapping[str, Any]) -> Counts:
    """The figures of a sink; what its spool held at the start came in, too."""
    ledger = sink["ledger"]
    dropped = sum(ledger["dropped"].values())
    return {
        "in": ledger["accepted"] + ledger["recovered"],
        "out": ledger["delivered"],
        "filtered": ledger["filtered"],
        "refused": sum(ledger["rejected"].values()),
        "dropped": dropped,
        "pending": sink["pending_records"],
        "dead": sink["dead_letters"],
        "lost": dropped + ledger.get("discarded", 0),
    }


def is_worth_a_row(pipeline: Mapping[str, Any]) -> bool:
    """Whether a pipeline itself changes the number of records, so that its sources and sinks differ."""
    counts = pipeline_counts(pipeline)
    return any(counts[name] for name in ("filtered", "dropped", "derived", "merged"))


def count_columns(rows: Sequence[Counts]) -> list[Column]:
    """The columns of these figures: `in`, `out`, and what is not 0 everywhere."""
    names = ["in", "out", *(name for name in RARE if any(row.get(name) for row in rows))]
    return [Column(name, right=True) for name in names]


def count_cells(columns: Sequence[Column], counts: Counts) -> list[Cell]:
    """One row's cells of those columns; what is lost is red."""
    cells = []
    for column in columns:
        number = counts.get(column.title)
        text = "" if number is None else f"{number:,}"
        cells.append((text, "bold red" if column.title in ("dropped", "lost", "dead") and number else ""))
    return cells


def error_cell(component: Mapping[str, Any], longest: int, now: float | None = None) -> Cell:
    """The last error with its age."""
    if not component["last_error"]:
        return "", ""
    at = component.get("last_error_at")
    age = "" if at is None else f"{ago(((time.time() if now is None else now) - at) * 1000)}: "
    return f"{age}{plain(component['last_error'], longest)}", "red"
