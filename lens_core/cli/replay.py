"""`lens replay`: dead letters, again."""

from __future__ import annotations

from pathlib import Path

import click

from .client import ask, daemon_url, data_dir_option, url_option


@click.command("replay")
@click.option("--sink", default="", help="Only the dead letters of this sink.")
@url_option
@data_dir_option
def command(sink: str, url: str | None, data_dir: Path | None) -> None:
    """Send the records again that a sink refused, after what was wrong with them, or with the sink, is mended.

    \b
    Examples:
      lens replay
      lens replay --sink store
    """
    parameters = {"sink": sink} if sink else {}
    answer = ask("POST", daemon_url(url, data_dir), "/api/v1/replay", **parameters)
    click.echo(f"{answer['replayed']} dead letter(s) are on their way again.")
