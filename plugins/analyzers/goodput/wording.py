"""The ledger for people: one sentence, a bar, the buckets, the interruptions."""

from __future__ import annotations

from collections.abc import Iterator

import click

from .facts import Interruption, Ledger

_WIDTH = 60
_COLOURS = {
    "productive": "green",
    "startup": "cyan",
    "restore": "cyan",
    "checkpoint": "blue",
    "evaluation": "blue",
    "data": "magenta",
    "slow": "yellow",
    "stalled": "red",
    "lost": "red",
    "down": "bright_black",
    "queued": "bright_black",
    "periodic": "blue",
}
_LETTERS = {"productive": "█", "lost": "×", "stalled": "!", "down": "·", "queued": "·", "slow": "▒"}


def report(ledger: Ledger) -> str:
    """The whole report."""
    return "\n".join(_lines(ledger))


def sentence(ledger: Ledger) -> str:
    """The ledger in words."""
    if ledger.goodput is None:
        return f"{ledger.run}: no time has passed in this log"
    text = f"{ledger.goodput:.1%} of {duration(ledger.wall_seconds)} made progress"
    others = {name: seconds for name, seconds in ledger.buckets.items() if name != "productive" and seconds > 0}
    if not others:
        return text
    worst = max(others, key=lambda name: others[name])
    return f"{text}; most of the rest was {worst}: {duration(others[worst])}"


def duration(seconds: float) -> str:
    """Seconds for people: 45.0 s, 12 min 3 s, 5 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _lines(ledger: Ledger) -> Iterator[str]:
    yield sentence(ledger)
    yield _bar(ledger)
    yield ""
    yield f"{'BUCKET':<12}{'TIME':>14}{'SHARE':>9}"
    for name, seconds in sorted(ledger.buckets.items(), key=lambda one: -one[1]):
        if seconds > 0:
            share = seconds / ledger.wall_seconds
            yield click.style(f"{name:<12}", fg=_COLOURS[name]) + f"{duration(seconds):>14}{share:>9.1%}"
    if ledger.typical_seconds is not None and ledger.best_seconds is not None:
        yield ""
        yield f"a step: {ledger.typical_seconds:.3f} s as a rule, {ledger.best_seconds:.3f} s at the best pace held"
    if ledger.interruptions:
        yield ""
        yield f"{'INTERRUPTION':<24}{'NODE':<16}{'RANK':>5}{'COST':>14}{'GPU-HOURS':>11}"
        yield from (_interruption(found) for found in ledger.interruptions)
    yield ""
    yield f"resolution: {ledger.resolution}"
    yield from (f"note: {note}" for note in ledger.notes)


def _bar(ledger: Ledger) -> str:
    """A bar as wide as the wall time; a bucket of half a letter's width or more is in it."""
    if ledger.wall_seconds <= 0:
        return ""
    parts = []
    reached, drawn = 0.0, 0
    for name, seconds in ledger.buckets.items():
        reached += seconds
        until = round(_WIDTH * reached / ledger.wall_seconds)
        parts.append(click.style(_LETTERS.get(name, "─") * (until - drawn), fg=_COLOURS[name]))
        drawn = until
    return "".join(part for part in parts if part)


def _interruption(found: Interruption) -> str:
    rank = "" if found.rank is None else str(found.rank)
    hours = "unknown" if found.gpu_hours is None else f"{found.gpu_hours:.2f}"
    return f"{found.cause:<24}{found.node or '–':<16}{rank:>5}{duration(found.seconds):>14}{hours:>11}"
