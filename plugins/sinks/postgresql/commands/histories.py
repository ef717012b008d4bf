"""Histories that trackers have kept, read by the collectors and readers that there are.

An import that was interrupted goes on where it stopped. One that has ended reads everything again the next time, which
changes nothing: the keys of the records are the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice
from pathlib import Path

from lens_core import Context, LensError, Record, SelfMetrics
from lens_core.plugin_api.following import Following

from ....collectors.tensorboard import TensorBoard, TensorBoardSettings
from ....collectors.wandb_offline import WandbOffline, WandbOfflineSettings
from .aim_repository import read_aim
from .mlflow import read_mlflow

_BATCH = 2_000
_DONE = "runs.txt"


async def history_of(tracker: str, where: str, data_dir: Path, python: str = "") -> AsyncGenerator[list[Record], None]:
    """The records of a place in pieces, without those that an interrupted import has stored. Raises LensError.

    A piece counts as stored when the next one is asked for. `python` is the interpreter that has `aim`.
    """
    place = where if "://" in where else str(Path(where).absolute())
    state = data_dir / "imports" / f"{tracker}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    await asyncio.to_thread(state.mkdir, parents=True, exist_ok=True)
    if tracker in ("aim", "mlflow"):
        records: Iterator[Record] = read_aim(where, python) if tracker == "aim" else read_mlflow(where)
        pieces = _runs_of(records, state / _DONE)
    else:
        folder = Path(where)
        if not folder.is_dir():
            raise LensError(f"{folder} is no folder")
        pieces = collected(_collector(tracker, folder, state))
    async for piece in pieces:
        yield piece
    await asyncio.to_thread(shutil.rmtree, state)


def _collector(tracker: str, folder: Path, state: Path) -> WandbOffline | TensorBoard:
    context = Context(name="import", logger=logging.getLogger("lens.import"), data_dir=state, metrics=SelfMetrics())
    if tracker == "wandb":
        return WandbOffline(WandbOfflineSettings(paths=[str(folder)]), context)
    return TensorBoard(TensorBoardSettings(paths=[str(folder)]), context)


async def collected(collector: Following) -> AsyncGenerator[list[Record], None]:
    """All that a collector of files has to say, from where it stopped."""
    await collector.start()
    try:
        while True:
            records = list(await collector.collect())
            yield records
            await collector.stored()
            if not collector.more:
                return
    finally:
        await collector.stop()


async def _runs_of(every: Iterator[Record], done_file: Path) -> AsyncGenerator[list[Record], None]:
    """The records of runs, one run after the other, without those of the runs that are stored whole."""
    done = set(done_file.read_text().splitlines()) if done_file.exists() else set()
    records = _others(every, done)
    unfinished = ""
    while piece := await asyncio.to_thread(_next_records, records):
        yield piece
        # The last run of a piece may go on in the next one.
        runs = dict.fromkeys([*([unfinished] if unfinished else []), *(run_of(record) for record in piece)])
        *ended, unfinished = runs
        with done_file.open("a") as file:
            file.writelines(f"{run}\n" for run in ended)


def _others(records: Iterable[Record], done: set[str]) -> Iterator[Record]:
    return (record for record in records if run_of(record) not in done)


def _next_records(records: Iterator[Record]) -> list[Record]:
    return list(islice(records, _BATCH))


def run_of(record: Record) -> str:
    """The run that a record belongs to."""
    return str(getattr(record, "run_id", ""))
