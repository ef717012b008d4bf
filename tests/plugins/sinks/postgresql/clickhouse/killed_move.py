"""Moves the points of a store and kills itself at a chosen statement; a program of its own.

`python -m tests.plugins.sinks.postgresql.clickhouse.killed_move FOLDER DSN ADDRESS` reads lines of its input: a moment
("before", "during", "after" or "never"), a tab and a part of a statement. For each it moves in a fork of itself, which
kills itself with SIGKILL at the first such statement, and prints "killed" or the outcome of the move.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import clickhouse_connect
import psycopg
from lens_plugins.sinks.postgresql.clickhouse import moving
from lens_plugins.sinks.postgresql.clickhouse.client import ClickHouse

from lens_core import LensError, Secret
from tests.plugins.sinks.postgresql.support import running_store

assert clickhouse_connect  # imported once, before the forks


def kill() -> NoReturn:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def watch(owner: Any, name: str, moment: str, part: str) -> None:
    """Have a method of a class kill this process at its first call whose arguments have a text."""
    original = getattr(owner, name)

    async def watched(self: Any, *arguments: Any, **options: Any) -> Any:
        texts = (one.decode() if isinstance(one, bytes) else str(one) for one in arguments[:2])
        if part not in " ".join(texts):
            return await original(self, *arguments, **options)
        if moment == "before":
            kill()
        running = asyncio.ensure_future(original(self, *arguments, **options))
        if moment == "during":
            for _ in range(3):  # as long as it takes to send it
                await asyncio.sleep(0)
            kill()
        await running
        kill()

    setattr(owner, name, watched)


async def move(folder: Path, dsn: str, address: str) -> str:
    """Move all points; the outcome."""
    async with running_store(folder, dsn, blocks=False, history_limit=4) as store:
        try:
            return f"moved {(await store.move_points(Secret(address), lambda _: None)).streams} streams"
        except LensError as error:
            return str(error)


def main() -> None:
    """Move as often as is asked."""
    folder, dsn, address = Path(sys.argv[1]), *sys.argv[2:4]
    moving._ROWS_AT_ONCE = 40
    moving._ROWS_OF_THE_END = 5
    for line in sys.stdin:
        child = os.fork()
        if not child:
            moment, part = line.rstrip("\n").split("\t")
            if moment != "never":
                watch(psycopg.AsyncConnection, "execute", moment, part)
                watch(ClickHouse, "_ask_client", moment, part)
                watch(ClickHouse, "insert", moment, part)
            print(asyncio.run(move(folder, dsn, address)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print("killed", flush=True)


if __name__ == "__main__":
    main()
