"""Implements `lens import`: histories that trackers have kept, read by the collectors and readers that there are.

An import that was interrupted goes on where it stopped. One that has ended reads everything again the next time, which
changes nothing: the keys of the records are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import islice
from pathlib import Path

import click

from lens_core import Context, LensError, Record, SelfMetrics, Store
from lens_core.commands import data_dir_option, json_option, show_progress
from lens_core.plugin_api.following import Following
from lens_core.plugin_api.urls import passwords_in, remember

from ....collectors.tensorboard import TensorBoard, TensorBoardSettings
from ....collectors.wandb_offline import WandbOffline, WandbOfflineSettings
from .db import run_with_store, show_counts
from .mlflow import read_mlflow
from .transfer import ImportCounts, store_records

_BATCH = 2_000
_DONE = "runs.txt"


@click.command("import")
@click.argument("tracker", type=click.Choice(["mlflow", "tensorboard", "wandb"]))
@click.argument("where")
@click.option(
    "--config", "-c", type=click.Path(dir_okay=False, path_type=Path), help="The configuration file [default: none]."
)
@data_dir_option
@json_option
def command(tracker: str, where: str, config: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Store the history that a tracker has kept: MLflow's database or folder, event files, offline runs of wandb.

    Interrupted, it goes on where it stopped when it is started again. Importing the same again changes nothing.

    \b
    Examples:
      lens import mlflow mlruns
      lens import mlflow postgresql://reader@db/mlflow
      lens import tensorboard runs/
      lens import wandb wandb/
    """
    for password in passwords_in(where):
        remember(password)

    async def import_history(store: Store) -> ImportCounts:
        with show_progress("Records read", None) as show:
            async with contextlib.aclosing(history_of(tracker, where, store.context.data_dir)) as pieces:
                return await store_records(store, pieces, lambda counts: show(counts.records))

    show_counts(run_with_store(config, data_dir, import_history), as_json)


async def history_of(tracker: str, where: str, data_dir: Path) -> AsyncGenerator[list[Record], None]:
    """The records of a place in pieces, without those that an interrupted import has stored. Raises LensError.

    A piece counts as stored when the next one is asked for.
    """
    place = where if "://" in where else str(Path(where).absolute())
    state = data_dir / "imports" / f"{tracker}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    await asyncio.to_thread(state.mkdir, parents=True, exist_ok=True)
    if tracker == "mlflow":
        pieces = _runs_of_mlflow(where, state / _DONE)
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


async def _runs_of_mlflow(where: str, done_file: Path) -> AsyncGenerator[list[Record], None]:
    done = set(done_file.read_text().splitlines()) if done_file.exists() else set()
    records = _others(read_mlflow(where), done)
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
