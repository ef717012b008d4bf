from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lens_core.cli.columns import Column, chosen, fitting_table

COLUMNS = [
    Column("state"),
    Column("workload", shrinks=True),
    Column("framework", goes=2),
    Column("speed", right=True, goes=3),
    Column("seen", right=True, goes=1),
]
ROW = [("stalled", "bold"), ("w" * 40, ""), ("deepspeed", ""), ("909.3", ""), ("41 min ago", "")]


def drawn(rows: list[list[tuple[str, str]]], width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(fitting_table(COLUMNS, rows, width))
    return out.getvalue().splitlines()


def test_what_matters_least_goes_first() -> None:
    assert chosen(COLUMNS, [ROW], 120) == [0, 1, 2, 3, 4]
    assert chosen(COLUMNS, [ROW], 52) == [0, 1, 2, 4]
    assert chosen(COLUMNS, [ROW], 40) == [0, 1, 4]
    assert chosen(COLUMNS, [ROW], 10) == [0, 1]


def test_a_column_without_a_text_takes_no_room() -> None:
    assert chosen(COLUMNS, [[*ROW[:3], ("", ""), ROW[4]]], 120) == [0, 1, 2, 4]


@given(st.integers(30, 200), st.text(st.characters(categories=["L", "N"]), max_size=60), st.integers(0, 5))
def test_only_names_are_cut(width: int, name: str, rows: int) -> None:
    found = drawn([[ROW[0], (name, ""), *ROW[2:]]] * rows, width)
    assert len(found) == rows + 1
    for line in found[1:]:
        assert line.startswith("stalled  ")
        assert line.rstrip().endswith("41 min ago") or width < 40


def test_a_text_is_no_markup() -> None:
    assert "[red]x[/]" in drawn([[("ok", ""), ("[red]x[/]", ""), ("", ""), ("", ""), ("", "")]], 80)[1]
