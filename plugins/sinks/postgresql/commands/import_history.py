"""Implements `lens import`: the histories that trackers have kept, into the store."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from lens_core import Store
from lens_core.commands import data_dir_option, json_option, show_progress
from lens_core.plugin_api.urls import passwords_in, remember

from .db import run_with_store, show_counts
from .histories import history_of
from .transfer import ImportCounts, store_records


@click.command("import")
@click.argument("tracker", type=click.Choice(["aim", "mlflow", "tensorboard", "wandb"]))
@click.argument("where")
@click.option(
    "--config", "-c", type=click.Path(dir_okay=False, path_type=Path), help="The configuration file [default: none]."
)
@click.option(
    "--python",
    default="",
    help="For aim: an interpreter that has the package aim [default: that of Lens].",
)
@data_dir_option
@json_option
def command(tracker: str, where: str, config: Path | None, python: str, data_dir: Path | None, as_json: bool) -> None:
    """Store the history that a tracker has kept: Aim's repository, MLflow's database or folder, event files, offline
    runs of wandb.

    Interrupted, it goes on where it stopped when it is started again. Importing the same again changes nothing.

    \b
    Examples:
      lens import mlflow mlruns
      lens import mlflow postgresql://reader@db/mlflow
      lens import tensorboard runs/
      lens import wandb wandb/
      lens import aim . --python train-env/bin/python
    """
    for password in passwords_in(where):
        remember(password)

    async def import_history(store: Store) -> ImportCounts:
        with show_progress("Records read", None) as show:
            async with contextlib.aclosing(history_of(tracker, where, store.context.data_dir, python)) as pieces:
                return await store_records(store, pieces, lambda counts: show(counts.records))

    show_counts(run_with_store(config, data_dir, import_history), as_json)
