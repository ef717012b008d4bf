"""Tests in several processes at once: scripts/test starts one for each core, with pytest-xdist.

A file of tests stays in one process, as its fixtures do. The pages' tests stay together, since the last of them looks
at what the others ran; so do the browser's, whose daemon has been told things that get old. Long files begin first, so
that no process is left with one at the end. A test that is marked `alone` waits until the others' present tests have
ended, and nobody begins another one meanwhile. What takes long to make and is the same for all is made once, by the
first process that needs it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# The variable with the folder that all processes of a run share; the first of them makes and removes it.
_SHARED = "PYTEST_SHARED_FOLDER"
_TOGETHER = ("tests/docs/", "tests/browser/")
# Seconds that a test is expected to take, if it is marked as slow and if not: only the order follows from them.
_SLOW, _QUICK = 15.0, 0.3


def kept_together(nodeid: str) -> str:
    """What a test stays together with: its file, or a folder."""
    return next((folder for folder in _TOGETHER if nodeid.startswith(folder)), nodeid.split("::")[0])


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives files of tests to processes, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return kept_together(nodeid)


@contextlib.contextmanager
def held(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """A lock between processes; released by name, as a forked child may have the file open for longer."""
    with path.open("a") as file:
        fcntl.flock(file, how)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first process to ask has filled; one that could not be filled is tried again."""
    folder = Path(os.environ[_SHARED]) / name
    complete = folder.with_suffix(".complete")
    with held(folder.with_suffix(".lock")):
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder


class Turns:
    """Who may run now: any number of tests beside each other, or one that is alone."""

    def __init__(self, folder: Path) -> None:
        self._door, self._room = folder / "door", folder / "room"

    @contextlib.contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Wait for a turn, and have it until the block ends."""
        with contextlib.ExitStack() as room:
            # Who waits to be alone keeps the door: those who come later do not overtake.
            with held(self._door):
                room.enter_context(held(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
            yield


class SideBySide:
    """The hooks of a process among others, or of the only one."""

    def __init__(self) -> None:
        self._mine = _SHARED not in os.environ
        if self._mine:
            os.environ[_SHARED] = tempfile.mkdtemp(prefix="lens-tests-")
        self._turns = Turns(Path(os.environ[_SHARED]))

    def pytest_unconfigure(self) -> None:
        """Remove what was shared."""
        if self._mine:
            shutil.rmtree(os.environ.pop(_SHARED), ignore_errors=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> ByFile:
        """Whatever --dist says."""
        return ByFile(config, log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Long files first, where there are several processes."""
        if not hasattr(config, "workerinput"):
            return
        seconds: dict[str, float] = defaultdict(float)
        for item in items:
            seconds[kept_together(item.nodeid)] += _SLOW if item.get_closest_marker("slow") else _QUICK
        items.sort(key=lambda item: -seconds[kept_together(item.nodeid)])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Wait for its turn, outside of the test's timeout."""
        with self._turns.turn(alone=item.get_closest_marker("alone") is not None):
            return (yield)
