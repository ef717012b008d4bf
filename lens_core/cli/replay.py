"""`lens replay`: dead letters, again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import click

from .client import ask, ask_long, config_option, daemon_url, data_dir_option, url_option
from .screen import progress

LOOK_EVERY_SECONDS = 0.5


@click.command("replay")
@click.option("--sink", default="", help="Only the dead letters of this sink.")
@url_option
@data_dir_option
@config_option
def command(sink: str, url: str | None, data_dir: Path | None) -> None:
    """Send the records again that a sink refused, after what was wrong with them, or with the sink, is mended.

    \b
    Examples:
      lens replay
      lens replay --sink store
    """
    address = daemon_url(url, data_dir)
    replayed = _replay(address, sink)
    click.echo(f"{replayed:,} dead letter(s) are on their way again.")


def _replay(address: str, sink: str) -> int:
    """Ask for it, and show meanwhile how many letters are left."""
    letters = _dead_letters(address, sink)
    with ThreadPoolExecutor(1) as pool, progress("Sending again", letters) as show:
        asked = pool.submit(ask_long, "POST", address, "/api/v1/replay", **({"sink": sink} if sink else {}))
        while wait([asked], LOOK_EVERY_SECONDS).not_done:
            show(letters - _dead_letters(address, sink))
        replayed: int = asked.result()["replayed"]
        show(replayed)
    return replayed


def _dead_letters(address: str, sink: str) -> int:
    status = ask("GET", address, "/api/v1/status")
    sinks = [found for pipeline in status["pipelines"] for found in pipeline["sinks"]]
    return sum(found["dead_letters"] for found in sinks if sink in ("", found["name"]))
