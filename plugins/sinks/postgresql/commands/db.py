"""Implements `lens db`: the store's database, from the terminal; beside a running daemon or without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from lens_core import Secret, Store
from lens_core.commands import data_dir_option, json_option, open_store, show_progress
from lens_core.plugin_api.urls import hide, passwords_in, remember

from .transfer import ImportCounts, header, lines, open_file, records_of, store_records

T = TypeVar("T")
_config_option = click.option(
    "--config", "-c", type=click.Path(dir_okay=False, path_type=Path), help="The configuration file [default: none]."
)


@click.group("db")
def command() -> None:
    """Maintain the store's database: bring it up to date, see what is in it, clean up, export and import.

    \b
    Examples:
      lens db stats
      lens db export --workload my-job my-job.jsonl.gz
      lens db import my-job.jsonl.gz
      lens import mlflow sqlite:///mlflow.db
    """


@command.command("migrate")
@_config_option
@data_dir_option
def migrate(config: Path | None, data_dir: Path | None) -> None:
    """Bring the database up to date; `lens up` does the same when it starts.

    \b
    Example:
      lens db migrate --config lens.yaml
    """

    async def read_stats(store: Store) -> dict[str, Any]:
        return await store.stats()

    found = run_with_store(config, data_dir, read_stats)
    click.echo(f"The database is at migration {found['migration']}.")


@command.command("stats")
@_config_option
@data_dir_option
@json_option
def stats(config: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Show the size of the database: bytes, rows, the largest workloads.

    \b
    Examples:
      lens db stats
      lens db stats --json
    """

    async def read_stats(store: Store) -> dict[str, Any]:
        return await store.stats()

    found = run_with_store(config, data_dir, read_stats)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    for name, value in found.items():
        if not isinstance(value, list):
            click.echo(f"{name.replace('_', ' '):26} {value:,}" if isinstance(value, int) else f"{name:26} {value}")
    for table in found["tables"]:
        click.echo(f"  {table['table']:24} {table['bytes'] / 2**20:12,.1f} MiB  {table['rows_estimated']:>14,} rows")
    for workload in found["largest"]:
        click.echo(f"  {workload['rows']:>14,} rows  {workload['name']} ({workload['workload_uid']})")


@command.command("vacuum")
@_config_option
@data_dir_option
@json_option
def vacuum(config: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Do now what is else done in the background: compact what is finished, remove what is too old, vacuum all tables.

    \b
    Example:
      lens db vacuum
    """
    found = run_with_store(config, data_dir, lambda store: store.vacuum())
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        click.echo(", ".join(f"{name.replace('_', ' ')}: {value:,}" for name, value in found.items()))


@command.command("move-points")
@click.argument("where", envvar="LENS_POINTS")
@_config_option
@data_dir_option
@json_option
def move_points(where: str, config: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Move the points to the ClickHouse at WHERE (or $LENS_POINTS) while the store is in use.

    Everything is copied and compared. What is interrupted goes on when the command is run again. At the end daemons
    write no more; what comes waits in their spools until they are started with the setting `points`.

    \b
    Examples:
      lens db move-points clickhouse://lens@clickhouse:8123/lens
      LENS_POINTS=clickhouse://lens:secret@clickhouse:8123/lens lens db move-points
    """
    for password in passwords_in(where):
        remember(password)

    async def move(store: Store) -> Any:
        from ..plugin import PostgreSQL

        if not isinstance(store, PostgreSQL):
            raise click.ClickException("only the points of a store in PostgreSQL can be moved")
        with show_progress("Rows copied", None) as show:
            return await store.move_points(Secret(where), show)

    try:
        moved = run_with_store(config, data_dir, move)
    except ValueError as error:
        raise click.ClickException(hide(str(error))) from None
    if as_json:
        click.echo(msgspec.json.encode(moved._asdict()).decode())
        return
    click.echo(f"{moved.streams:,} streams with {moved.rows:,} rows were copied and compared.")
    click.echo("Set `points` of the store and start the daemons again. `lens db vacuum` then removes the old rows.")


@command.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--workload", default="", help="Only what belongs to this workload.")
@_config_option
@data_dir_option
def export(file: Path, workload: str, config: Path | None, data_dir: Path | None) -> None:
    """Write everything, or one workload, to FILE: one record per line as JSON; compressed if it ends in .gz.

    \b
    Examples:
      lens db export everything.jsonl.gz
      lens db export --workload my-job my-job.jsonl
    """

    async def export_records(store: Store) -> int:
        return await _write_pieces(store.export_records(workload), file)

    count = run_with_store(config, data_dir, export_records)
    click.echo(f"{count:,} records were written to {file}.")


@command.command("import")
@click.argument("where")
@click.option(
    "--from",
    "kind",
    type=click.Choice(["lens", "primus-lens", "mlflow", "wandb-offline"]),
    default="lens",
    help="The kind of WHERE: a file of `lens db export`; the URL of a Primus Lens database; "
    "MLflow's database or folder; a folder with offline runs of wandb.",
)
@_config_option
@data_dir_option
@json_option
def import_(where: str, kind: str, config: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Store what another system has. Importing the same again changes nothing.

    \b
    Examples:
      lens db import everything.jsonl.gz
      lens db import --from primus-lens postgresql://reader@db/primus_lens
      lens db import --from mlflow mlruns
      lens db import --from wandb-offline wandb/
    """

    for password in passwords_in(where):
        remember(password)

    async def import_records(store: Store) -> ImportCounts:
        pieces = records_of(kind, where)
        with show_progress("Records read", None) as show:
            return await store_records(store, pieces, lambda counts: show(counts.records))

    show_counts(run_with_store(config, data_dir, import_records), as_json)


def show_counts(counts: ImportCounts, as_json: bool) -> None:
    """Print how much was imported; ends with 1 if something could not be stored."""
    if as_json:
        click.echo(msgspec.json.encode(counts).decode())
    else:
        click.echo(f"{counts.records:,} records were read, {counts.rejected:,} of them could not be stored.")
        for reason in counts.reasons:
            click.echo(hide(f"  {reason}"))
    if counts.rejected:
        raise SystemExit(1)


def run_with_store(config: Path | None, data_dir: Path | None, work: Callable[[Store], Awaitable[T]]) -> T:
    """Do work with the store of a configuration, and return what it returns."""

    async def all_() -> T:
        async with open_store(config, data_dir) as store:
            return await work(store)

    return asyncio.run(all_())


async def _write_pieces(pieces: AsyncIterator[Iterable[Any]], file: Path) -> int:
    count = 0
    part = file.with_name(f"part-{file.name}")
    with open_file(part, "wb") as target, show_progress("Records written", None) as show:
        target.write(header())
        async for records in pieces:
            found = list(records)
            target.write(lines(found))
            count += len(found)
            show(count)
    part.replace(file)
    return count
