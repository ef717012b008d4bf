"""Rows that are logged inside a framework's own logging: the trackers below it repeat one row, each in its own way.

While the logging method of a framework runs, its thread carries a mark. What a tracker logs meanwhile is that
framework's echo; the framework's own row is sent only if no tracker has logged anything.
"""

from __future__ import annotations

import _thread
from typing import Any, Dict


class Echo(Dict[Any, Any]):
    """Values that were logged inside the logging of `of`; in a row, in the place of what was logged."""

    __slots__ = ("of",)

    def __init__(self, values: dict[Any, Any], of: str) -> None:
        super().__init__(values)
        self.of = of


class Mark:
    """One call of a framework's logging method; `heard` is True once a tracker has logged something."""

    __slots__ = ("heard", "of")

    def __init__(self, of: str) -> None:
        self.of = of
        self.heard = False


# By thread. Empty nearly always, which is all that a tracker's call has to look at.
inside: dict[int, Mark] = {}


def enter(of: str) -> Mark | None:
    """Mark this thread; None if it is marked already: then somebody further out has the row."""
    thread = _thread.get_ident()
    if thread in inside:
        return None
    mark = inside[thread] = Mark(of)
    return mark


def leave() -> None:
    """Take the mark off this thread again."""
    inside.pop(_thread.get_ident(), None)


def as_echo(values: dict[Any, Any], *, of: str = "") -> dict[Any, Any]:
    """The values as the echo of what this thread is in, else of `of`, else as they are."""
    of = hear_echo() or of
    return Echo(values, of) if of else values


def hear_echo() -> str:
    """Note that a tracker logs something in this thread; the framework that it is inside of, or nothing."""
    mark = inside.get(_thread.get_ident())
    if mark is None:
        return ""
    mark.heard = True
    return mark.of


def forget_other_threads() -> None:
    """After a fork: this thread is the only one."""
    own = inside.get(_thread.get_ident())
    inside.clear()
    if own is not None:
        inside[_thread.get_ident()] = own
