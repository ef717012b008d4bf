"""Single keys of a terminal, while a picture is shown."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator

ESCAPE, ENTER, BACKSPACE = "escape", "enter", "backspace"
_NAMES = {"\x1b": ESCAPE, "\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE}

# Arrows, function keys and pastes.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.)")

# Waits at most so many seconds, and returns the keys that were pressed meanwhile.
KeyWait = Callable[[float], list[str]]


@contextlib.contextmanager
def reading_keys() -> Iterator[KeyWait | None]:
    """A function that waits for keys; None where standard input is no terminal that gives them one by one."""
    try:
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError, AttributeError, termios.error):
        yield None
        return
    try:
        tty.setcbreak(descriptor)
        yield lambda seconds: wait_for_keys(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def wait_for_keys(descriptor: int, seconds: float) -> list[str]:
    """The keys that come within so many seconds; empty when none does."""
    readable, _, _ = select.select([descriptor], [], [], max(0.0, seconds))
    if not readable:
        return []
    pressed = os.read(descriptor, 1024)
    if not pressed:  # the terminal is gone
        time.sleep(max(0.0, seconds))
    return keys_in(pressed.decode(errors="ignore"))


def keys_in(text: str) -> list[str]:
    """The keys of what a terminal sends: letters, and the names of some; arrows and other sequences are left out."""
    letters = _SEQUENCE.sub("", text)
    return [_NAMES.get(letter, letter) for letter in letters if letter in _NAMES or letter.isprintable()]
