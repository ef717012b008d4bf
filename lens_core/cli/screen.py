"""Changing output: redrawn screens, progress bars, and their plain forms where the output is no terminal.

A terminal that cannot move its cursor (TERM=dumb) and a pipe get lines instead, one below the other.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from .wording import in_locale

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# The interval of pictures on a terminal that gets each as new lines.
LINES_EVERY_SECONDS = 5.0


def make_console(*, piped_width: int, to_stderr: bool = False) -> Console:
    """A console as wide as the terminal, or `piped_width` wide where there is none."""
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    return Console(stderr=to_stderr, width=None if stream.isatty() else piped_width, highlight=False)


def can_redraw(console: Console) -> bool:
    """Whether what was printed can be printed over."""
    return console.is_terminal and not console.is_dumb_terminal


@contextlib.contextmanager
def pictures(
    console: Console, *, whole_screen: bool = False, lines_every_seconds: float = LINES_EVERY_SECONDS
) -> Iterator[Callable[[RenderableType], None]]:
    """A function that shows a picture in place of the one before; now and then as lines where that is not possible."""
    if can_redraw(console):
        from rich.live import Live

        with Live(console=console, screen=whole_screen, transient=True, auto_refresh=False) as live:
            yield lambda index: live.update(index, refresh=True)
        return
    last = -lines_every_seconds

    def print_page(index: RenderableType) -> None:
        nonlocal last
        if time.monotonic() - last >= lines_every_seconds:
            last = time.monotonic()
            console.print(index)

    yield print_page


@contextlib.contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A function that is told how much of long work is done; `total` None where nobody knows how much it is.

    A bar on a terminal, a line every few seconds elsewhere; both on standard error, as standard output is for data.
    """
    console = make_console(piped_width=80, to_stderr=True)
    if not can_redraw(console):
        yield _lines(title, total)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    counted = MofNCompleteColumn() if total is not None else TextColumn("{task.completed:,.0f}")
    columns = (TextColumn("{task.description}"), BarColumn(), counted, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def _lines(title: str, total: int | None) -> Callable[[int], None]:
    last = time.monotonic()  # instant work needs no line

    def print_line(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINES_EVERY_SECONDS:
            last = time.monotonic()
            click.echo(in_locale(f"{title}: {done:,}{'' if total is None else f' of {total:,}'} …"), err=True)

    return print_line
