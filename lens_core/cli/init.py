"""`lens init`: a commented first configuration."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.errors import LensError
from ..config.first_file import first_file
from ..plugin_host.host import PluginHost


@click.command("init")
@click.argument("file", default="lens.yaml", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--primus", is_flag=True, help="Replace a Primus-Lens telemetry processor.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def command(file: Path, primus: bool, force: bool) -> None:
    """Write a commented configuration to FILE (lens.yaml; - prints it), made from the plugins installed here.

    \b
    Examples:
      lens init
      lens init --primus /etc/lens/lens.yaml
      lens init - | less
    """
    text = first_file(PluginHost.load(), primus=primus)
    if str(file) == "-":
        click.echo(text, nl=False)
        return
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise LensError(f"{file} is there already; --force overwrites it") from None
    except OSError as error:
        raise LensError(f"{file} cannot be written: {error.strerror}") from None
    click.echo(f"Wrote {file}. Next: lens validate {file}, then lens up --config {file}")
