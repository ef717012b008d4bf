"""`lens replay`: dead letters, again."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import click

from ..plugin_api.commands import data_dir_option
from .client import config_option, daemon_url, request_json, request_without_limit, url_option
from .screen import progress
from .wording import ago, plain

LOOK_EVERY_SECONDS = 0.5
LONGEST_REASON = 500


@click.command("replay")
@click.option("--sink", default="", help="Only the dead letters of this sink.")
@click.option("--list", "is_list", is_flag=True, help="Only show the reasons and counts of refusals; send nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --list: as JSON.")
@url_option
@data_dir_option
@config_option
def command(sink: str, is_list: bool, as_json: bool, url: str | None, data_dir: Path | None) -> None:
    """Send the records that a sink refused again, once the cause is fixed.

    \b
    Examples:
      lens replay
      lens replay --sink store
      lens replay --list
    """
    if as_json and not is_list:
        raise click.UsageError("--json goes with --list")
    address = daemon_url(url, data_dir)
    if is_list:
        _show_reasons(address, sink, as_json=as_json)
        return
    replayed = _replay(address, sink)
    click.echo(f"{replayed:,} dead letter(s) are on their way again.")


def _show_reasons(address: str, sink: str, *, as_json: bool) -> None:
    """Print why records were refused, the reason of the newest first."""
    answer = request_json("GET", address, "/api/v1/dead-letters", **({"sink": sink} if sink else {}))
    found: list[dict[str, Any]] = answer["dead_letters"]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if not found:
        click.echo("There are no dead letters.")
    for one in found:
        age = ago((time.time() - one["last_at"]) * 1000)
        where = f"{one['pipeline']}/{one['sink']}"
        click.echo(f"{where}: {one['records']:,} record(s), the last {age}: {plain(one['reason'], LONGEST_REASON)}")


def _replay(address: str, sink: str) -> int:
    """Ask for it, and show meanwhile how many letters are left."""
    letters = _dead_letters(address, sink)
    with ThreadPoolExecutor(1) as pool, progress("Sending again", letters) as show:
        asked = pool.submit(
            request_without_limit, "POST", address, "/api/v1/replay", **({"sink": sink} if sink else {})
        )
        while wait([asked], LOOK_EVERY_SECONDS).not_done:
            show(letters - _dead_letters(address, sink))
        replayed: int = asked.result()["replayed"]
        show(replayed)
    return replayed


def _dead_letters(address: str, sink: str) -> int:
    status = request_json("GET", address, "/api/v1/status")
    sinks = [found for pipeline in status["pipelines"] for found in pipeline["sinks"]]
    return sum(found["dead_letters"] for found in sinks if sink in ("", found["name"]))
