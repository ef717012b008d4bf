"""`lens up`: the daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..base.redaction import hide
from ..plugin_api.commands import data_dir_option
from .client import plugins_dir_option
from .wording import in_locale, plain

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ..config.loading import Config
    from ..daemon.daemon import Daemon
    from ..plugin_host.host import PluginHost


@click.command("up")
@click.option("--config", "-c", type=click.Path(dir_okay=False, path_type=Path), help="The configuration file.")
@click.option(
    "--listen", metavar="HOST:PORT", help="The address to listen on; overrides the file. Port 0 selects a free port."
)
@plugins_dir_option
@data_dir_option
@click.option("--announce-json", is_flag=True, help="Print one JSON line on standard output when ready, nothing else.")
@click.option("--exit-with-parent", type=int, metavar="PID", help="Stop when this process exits.")
def command(
    config: Path | None,
    listen: str | None,
    data_dir: Path | None,
    announce_json: bool,
    exit_with_parent: int | None,
) -> None:
    """Run the daemon: ingest training data, store it, answer queries.

    Without a file the defaults apply: an embedded PostgreSQL in the data directory, HTTP on 127.0.0.1:8080.
    SIGTERM drains and ends; SIGHUP reads the file again, and loads files that are new in the folder of plugins.

    \b
    Examples:
      lens up
      lens up --config lens.yaml --listen 0.0.0.0:8080
    """
    from ..base.process import configure_logging, freeze_gc
    from ..daemon.daemon import Daemon
    from ..plugin_host.host import PluginHost

    configure_logging(os.environ)
    host = PluginHost.load()

    def load_config() -> Config:
        return _load_config(config, listen, data_dir, host)

    def load_again() -> Config:
        for plugin in host.load_new_files():
            click.echo(f"lens: new plugin file {plugin.distribution}: {plugin.reason or plugin.state}", err=True)
        return load_config()

    settings = load_config()
    for notice in [*settings.notices, *_going(host)]:
        click.echo(f"lens: {notice}", err=True)
    announce = _announce_json if announce_json else _announce

    def announced(daemon: Daemon) -> None:
        freeze_gc()
        announce(daemon)

    daemon = Daemon(settings, host, reload=load_again if config else None, announce=announced, owns_process=True)
    _run_daemon(daemon, exit_with_parent)


def _going(host: PluginHost) -> list[str]:
    """Log which deprecated names the plugins use, so that users can ask for newer versions in time."""
    return [f"the plugin {plugin.name} uses {text}" for plugin in host.plugins() for text in plugin.deprecations]


def _load_config(config: Path | None, listen: str | None, data_dir: Path | None, host: object) -> Config:
    import msgspec

    from ..config.loading import load_config
    from ..config.settings import Address
    from ..plugin_host.host import PluginHost

    assert isinstance(host, PluginHost)
    loaded = load_config(config, host, os.environ, data_dir)
    if listen is None:
        return loaded
    try:
        address = msgspec.convert(listen, Address)
        server = msgspec.structs.replace(loaded.server, listen=address)
    except ValueError:  # a pattern that does not match, or a port above 65535
        text = f"{listen!r} is no address; write HOST:PORT, as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080"
        raise click.BadParameter(text, param_hint="--listen") from None
    return msgspec.structs.replace(loaded, server=server)


def _run_daemon(daemon: Daemon, exit_with_parent: int | None) -> None:
    from ..base.exits import run_until_complete
    from ..base.process import allow_many_files, keep_large_blocks

    keep_large_blocks()
    allow_many_files()
    run_until_complete(_new_event_loop(), daemon.run(exit_with_parent))


def _new_event_loop() -> AbstractEventLoop:
    """The faster loop of the extra `server`; an agent on a node has few clients and does without its 14 MB."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _announce_json(daemon: Daemon) -> None:
    import msgspec

    click.echo(msgspec.json.encode({"listening": daemon.url, "pid": os.getpid()}))


def _announce(daemon: Daemon) -> None:
    config = daemon.config
    states = daemon.host.plugins()
    loaded = [plugin.name for plugin in states if plugin.state == "loaded"]
    click.echo(f"Lens listens on {daemon.url}")
    page = (config.server.public_url or daemon.url).rstrip("/")
    click.echo(f"  page:     {page}/")
    for name, pipeline in config.pipelines.items():
        sources = ", ".join(pipeline.sources) or "nothing"
        click.echo(in_locale(f"  pipeline {name}: {sources} → {', '.join(pipeline.sinks)}"))
    store = daemon.assembly.store if daemon.assembly is not None else None
    if store is not None and store.notice():
        click.echo(f"  {config.store}:    {plain(hide(store.notice()), 400)}")
    click.echo(f"  data:     {config.data_dir}")
    click.echo(f"  plugins:  {len(loaded)} loaded (`lens plugins` lists them)")
    for plugin in states:
        if plugin.state not in ("loaded", "disabled"):
            click.echo(f"  plugin {plugin.name} is {plugin.state}: {plugin.reason}", err=True)
    click.echo("Next, in another terminal:")
    click.echo("  lens run --workload my-run -- python train.py    your training, unchanged; it shows up on the page")
    click.echo("  lens doctor --send                               whether data arrives, and what fixes it if not")
