"""Tests in several processes at once: scripts/test starts two for each core, with pytest-xdist.

A file of tests stays in one process, as its fixtures do. Long files begin first, so that no process is left with one at
the end; the one that looks at what others ran begins last. What takes long to make and is the same for all is made
once, by the first process that needs it. The modules of Lens are compiled before the first test, those of the tests by
one process for all: where Python is told to write no bytecode, each process, daemon and command of the tests would
compile them anew, a third of all that it does. Temporary files of such a run are in memory, where there is room: file
systems on disks take long to find places for the thousands of files of databases that come and go.
"""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import gc
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.durations import preparing

# The variable with the folder that all processes of a run share; the first of them makes and removes it.
_SHARED = "PYTEST_SHARED_FOLDER"
# Waits in its test for those of its folder in other processes: nothing may be behind it.
_LAST = "tests/docs/test_nothing_left_out.py"
# Seconds that a test is expected to take, if it is marked as slow and if not: only the order follows from them.
_SLOW, _QUICK = 15.0, 0.3
# The process that compiles tests for the others, and how long they wait for one that has come to nothing.
_FIRST, _COMPILING_SECONDS = "gw0", 120.0
# A file system in memory, and what must be free in it and of the memory; a whole run takes about a third of it.
_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 6 << 30
# New objects after which a process of tests looks for garbage, and the line of a .pth file for others.
_NEW_OBJECTS = 50_000
SELDOM_GARBAGE = f"import gc; gc.set_threshold({_NEW_OBJECTS})\n"
_ROOT = Path(__file__).parents[1]


def file_of(nodeid: str) -> str:
    """The file of a test, which stays in one process."""
    return nodeid.split("::")[0]


def shared_folder() -> Path:
    """The folder that all processes of a run share."""
    return Path(os.environ[_SHARED])


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives files of tests to processes, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return file_of(nodeid)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """A lock between processes; released by name, as a forked child may have the file open for longer."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first process to ask has filled; one that could not be filled is tried again."""
    folder = shared_folder() / name
    complete = folder.with_suffix(".complete")
    with preparing(), held(folder.with_suffix(".lock")):
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder


@contextlib.contextmanager
def without_garbage() -> Iterator[None]:
    """Look for no garbage while tests are collected, and never again among what stays until the process ends.

    The 400,000 objects of all tests take half a second to look through, many times while they are made, and again in
    each test that collects garbage. Tests make many objects that stay for a while, such as trees of modules: after
    every 700 of them, as Python does by itself, looking takes longer than making them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS)
        gc.enable()


def folder_in_memory(memory: Path = _MEMORY, room: int = _ROOM_BYTES) -> Path | None:
    """A new folder in memory for temporary files; None where there is too little room or nothing can be executed."""
    try:
        usable = min(shutil.disk_usage(memory).free, psutil.virtual_memory().available // 2)
        if usable < room or os.statvfs(memory).f_flag & os.ST_NOEXEC:
            return None
        for left in memory.glob("lens-tests-*"):  # runs that were killed left them
            if not psutil.pid_exists(int(left.name.rpartition("-")[2])):
                shutil.rmtree(left, ignore_errors=True)
        folder = memory / f"lens-tests-{os.getpid()}"
        folder.mkdir(mode=0o711)  # PostgreSQL runs as another user if the tests run as root
    except (OSError, ValueError):
        return None
    return folder


class SideBySide:
    """The hooks of a process among others, or of the only one."""

    def __init__(self, config: pytest.Config) -> None:
        self._mine = _SHARED not in os.environ
        many = self._mine and getattr(config.option, "numprocesses", None)
        self._memory = (
            folder_in_memory() if many and not config.option.basetemp and "TMPDIR" not in os.environ else None
        )
        if self._memory is not None:
            os.environ["TMPDIR"] = tempfile.tempdir = str(self._memory)
            config.option.basetemp = self._memory / "t"  # short, as paths of sockets are
        if self._mine:
            os.environ[_SHARED] = tempfile.mkdtemp(prefix="lens-tests-")
            for folder in ("lens_core", "plugins"):
                compileall.compile_dir(_ROOT / folder, quiet=2)

    def pytest_unconfigure(self) -> None:
        """Remove what was shared."""
        if self._mine:
            shutil.rmtree(os.environ.pop(_SHARED), ignore_errors=True)
        if self._memory is not None:
            shutil.rmtree(self._memory, ignore_errors=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """Of several processes the first compiles the tests, which is half of the work; the others read them."""
        with without_garbage():
            return (yield from self._collect_in_turn(session))

    def _collect_in_turn(self, session: pytest.Session) -> Generator[None, object, object]:
        worker = getattr(session.config, "workerinput", None)
        if worker is None:
            return (yield)
        compiled = shared_folder() / "compiled_tests"
        if worker["workerid"] != _FIRST:
            ends = time.monotonic() + _COMPILING_SECONDS
            while not compiled.exists() and time.monotonic() < ends:
                time.sleep(0.05)
            return (yield)
        writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, False
        try:
            return (yield)
        finally:
            sys.dont_write_bytecode = writes_none
            compiled.touch()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> ByFile:
        """Whatever --dist says."""
        return ByFile(config, log)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Long files first, where there are several processes; one last in any case."""
        if not hasattr(config, "workerinput"):
            items.sort(key=lambda item: file_of(item.nodeid) == _LAST)
            return
        seconds: dict[str, float] = defaultdict(float)
        for item in items:
            seconds[file_of(item.nodeid)] += _SLOW if item.get_closest_marker("slow") else _QUICK
        items.sort(key=lambda item: (file_of(item.nodeid) == _LAST, -seconds[file_of(item.nodeid)]))
