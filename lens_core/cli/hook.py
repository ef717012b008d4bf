"""`lens hook`: the hook of this Python environment, on or off."""

from __future__ import annotations

import click
import msgspec


@click.group("hook")
def command() -> None:
    """Switch the wandb hook of this Python environment on or off for every process.

    \b
    Examples:
      lens hook status
      lens hook enable      (for an editable install; the wheel of lens-hook does it by itself)
      lens hook disable
    """


@command.command()
def enable() -> None:
    """Put the hook's .pth file beside the packages."""
    from lens_hook import switch
    from lens_hook.__main__ import describe

    click.echo("\n".join(describe(switch.enable())))


@command.command()
def disable() -> None:
    """Take the hook's .pth file away."""
    from lens_hook import switch
    from lens_hook.__main__ import describe

    click.echo("\n".join(describe(switch.disable())))


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Say whether the hook is on, and by which file."""
    from lens_hook import switch
    from lens_hook.__main__ import describe

    found = switch.status()
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        click.echo("\n".join(describe(found)))
