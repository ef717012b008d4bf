"""Finds the files that a plugin opens for writing, so that a sink names those that only it may write."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_watching: list[set[str]] = []
_hooked: list[bool] = []


@contextmanager
def written_files() -> Iterator[set[str]]:
    """Collect the absolute paths of files that this process opens for writing meanwhile."""
    if not _hooked:  # a hook stays for the rest of the process
        _hooked.append(True)
        sys.addaudithook(_note)
    found: set[str] = set()
    _watching.append(found)
    try:
        yield found
    finally:
        _watching.remove(found)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _watching:
        return
    path, mode, flags = arguments
    if not isinstance(path, str | bytes | os.PathLike):
        return
    writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else False
    if writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
        for found in _watching:
            found.add(os.path.abspath(os.fsdecode(path)))
