"""The command `lens`: each command is a file of its own, imported only when it is called."""

from __future__ import annotations

import importlib
import io
import os
import sys
from typing import Any

import click

from ..base.process import drop_socks_proxies, keep_off_proxies
from ..plugin_api.commands import OWN_COMMANDS
from .wording import print_notice

EXIT_FAILED = 1
EXIT_CONFIGURATION = 78


class LazyCommands(click.Group):
    """A group whose commands are imported when they are asked for, so that `lens plugins` stays quick.

    Each own command is a module of this package with a click command called `command`. Plugins are loaded only for a
    name that is none of them, and for the list.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Lens' own commands in their order, then those of plugins."""
        return [*OWN_COMMANDS, *_plugin_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module, or find the plugin that brings it."""
        if cmd_name not in OWN_COMMANDS:
            return _plugin_commands().get(cmd_name)
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command


def _plugin_commands() -> dict[str, click.Command]:
    from ..plugin_host.host import PluginHost

    return PluginHost.load().commands()


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lens-agent", prog_name="lens")
def cli() -> None:
    """Lens sees what every training job is doing, without anyone changing their training code.

    \b
    Start here:
      lens demo                      a daemon, a small real training run, and the address to look at
      lens up                        the daemon, on its embedded PostgreSQL
      lens run -- python train.py    your training, with the hook on
    """
    if click.get_current_context().invoked_subcommand == "run":
        return  # its command gets the variables as they are
    keep_off_proxies(os.environ)
    if dropped := drop_socks_proxies(os.environ):
        print_notice(
            f"lens: {dropped[0]} names a SOCKS proxy, which is not used: that needs pip install 'httpx[socks]'"
        )


def main(arguments: list[str] | None = None, **extra: Any) -> None:
    """Entry point of the command `lens`; exits with 0 ok, 1 failed, 2 wrong usage, 78 bad configuration."""
    from ..base.errors import ConfigurationError, LensError
    from ..base.process import collect_rarely
    from ..base.redaction import hide

    if arguments is None:  # the process is the command's own
        collect_rarely()
    _print_anywhere()
    try:
        cli.main(args=arguments, prog_name="lens", **extra)
    except ConfigurationError as error:
        click.echo(hide(f"lens: {error}"), err=True)
        raise SystemExit(EXIT_CONFIGURATION) from None
    except LensError as error:
        click.echo(hide(f"lens: {error}"), err=True)
        raise SystemExit(EXIT_FAILED) from None


def _print_anywhere() -> None:
    """A terminal or pipe that has no letter for ✓ or ▁ gets a question mark, not an end of the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
