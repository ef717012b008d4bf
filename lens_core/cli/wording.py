"""Numbers, times and lines of bars as people read them in a terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*#@"
CUT, ASCII_CUT = "…", "..."
_IN_ASCII = str.maketrans(
    {"→": "->", "–": "-", "…": "...", "·": "|", "↑": "^", "↓": "v", "█": "#", "▒": "~", "×": "x"}
    | {"✓": "+", "✗": "x", "│": "|", "─": "-", "▶": ">"}
    | dict.fromkeys("┌┐└┘├┤┬┴┼", "+")
)
# A text is cut between two words where one ends so near.
_NEAR_WORD = 16
# From here on a number is written with its exponent.
_LARGEST_UNIT = 1e15
# The colours of the states of components.
STATE_STYLES = {
    "failing": "bold red",
    "failed": "bold red",
    "retrying": "yellow",
    "idle": "green",
    "sending": "green",
    "running": "green",
}


def print_text(text: str) -> None:
    """Print lines, in the letters of the locale; on a terminal those that are too long are wrapped between words."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in in_locale(text).split("\n"):
        is_long = width is not None and len(click.unstyle(line)) > width
        click.echo("\n".join(wrap_line(line, width or 0)) if is_long else line)


def wrap_line(line: str, width: int) -> list[str]:
    """The parts of a line, those after the first as far to the right as it begins, and two letters more."""
    indent = " " * min(len(line) - len(line.lstrip()), width // 2)
    return textwrap.wrap(
        line.strip(),
        max(20, width),
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_notice(line: str) -> None:
    """Print a line on standard error; a full disk or a closed terminal must not end the caller."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def page_address(url: str, workload: str) -> str:
    """The address of the page of a workload, of the daemon at `url`."""
    return f"{url.rstrip('/')}/#/workload?uid={quote(workload, safe='')}"


def is_ascii_only(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the locale has no letters but those of ASCII, as `LC_ALL=C` says, whatever Python writes by itself."""
    variables = os.environ if environ is None else environ
    chosen = next((variables[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if variables.get(name)), "")
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return chosen.upper() in ("C", "POSIX") or encoding in ("ascii", "us-ascii", "ansi_x3.4-1968")


def in_locale(text: str) -> str:
    """A text with the signs of Lens' own (arrows, dashes) in ASCII where the locale has no others."""
    return text.translate(_IN_ASCII) if is_ascii_only() else text


def sparkline(values: Sequence[float], width: int) -> str:
    """Values as bars, each column the mean of its share of them."""
    if not values:
        return ""
    bars = ASCII_BARS if is_ascii_only() else BARS
    means = column_means(values, width)
    low, half = min(means), max(means) / 2 - min(means) / 2  # the range of the largest numbers is infinite
    return "".join(bars[round((mean / 2 - low / 2) / half * (len(bars) - 1)) if half else 0] for mean in means)


def column_means(values: Sequence[float], width: int) -> list[float]:
    """The means of so many shares of values, or the values where there are no more."""
    columns = min(width, len(values))
    shares = [
        values[column * len(values) // columns : (column + 1) * len(values) // columns] for column in range(columns)
    ]
    return [min(max(share), max(min(share), sum(value / len(share) for value in share))) for share in shares]


def plain(text: str, longest: int = 60) -> str:
    """A text that somebody else wrote, on one line: it must not move the cursor or colour the terminal.

    A longer one is cut, between two words where there is such a place.
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: longest + 1])
    if len(shown) <= longest:
        return shown
    cut = ASCII_CUT if is_ascii_only() else CUT
    kept = shown[: longest - len(cut)]
    space = kept.rfind(" ") if shown[len(kept)] != " " else -1
    return f"{kept[:space] if space >= max(len(kept) - _NEAR_WORD, len(kept) // 2) else kept}{cut}"


def amount(value: float | None) -> str:
    """A number in few letters."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= _LARGEST_UNIT:
        return f"{value:.3g}"
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit:
            return f"{value / min(unit, 1e3 if letter == 'k' else unit):.3g} {letter}"
    return f"{value:.4g}"


def bytes_text(value: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return ""


def ago(milliseconds: float) -> str:
    """Format the age of a time, in one unit."""
    seconds = max(0.0, milliseconds / 1000)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "now" if seconds < 5 else f"{int(seconds)} s ago"


def memory_text(one: Mapping[str, Any]) -> str:
    """Say in whose calls the daemon's memory has grown, from its status."""
    grown = f"{one['grown_bytes'] / 2**20:,.0f} MiB in {one['calls']} calls"
    return f"plugin {one['distribution']}: {one['function']} of {one['component']} grew the daemon's memory by {grown}"


def busy_text(one: Mapping[str, Any]) -> str:
    """Say which plugin's function computes in a thread without a pause, from a daemon's status."""
    return f"plugin {one['distribution']}: {one['function']} has kept a thread busy for {one['cpu_seconds']:,.0f} s"
