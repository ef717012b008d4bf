"""The thread that reads a spool's file, with a connection of its own.

Nobody may rename a database file under an open connection (SQLite would later remove the log of the file that took
its name), so a repair closes this connection first and keeps readers out until it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from . import file as spool_file

T = TypeVar("T")


class SpoolReader:
    """Runs reading work in a thread; `translate` makes what callers get of SQLite's errors."""

    def __init__(self, path: Path, translate: Callable[[Exception], Exception]) -> None:
        self._path = path
        self._translate = translate
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"spool-reader-{path.name}")

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of the work."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._lock:
                if self._connection is None:
                    self._connection = spool_file.connect(str(self._path))
                return work(self._connection)
        except sqlite3.Error as error:
            raise self._translate(error) from error

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """No connection is open within this context."""
        with self._lock:
            self._close()
            yield

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def stop(self) -> None:
        """End the thread and close the connection."""
        await asyncio.to_thread(self._executor.shutdown)
        with self._lock:
            self._close()
