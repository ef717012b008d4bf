"""`lens schema`: the JSON schema of the configuration file."""

from __future__ import annotations

import click
import msgspec

from ..config.json_schema import json_schema
from ..plugin_host.host import PluginHost
from .client import plugins_dir_option


@click.command("schema")
@plugins_dir_option
def command() -> None:
    """Print the JSON schema of the configuration file, with the settings of all plugins installed here.

    \b
    Examples:
      lens schema > lens.schema.json
      echo '# yaml-language-server: $schema=lens.schema.json' | cat - lens.yaml
    """
    click.echo(msgspec.json.format(msgspec.json.encode(json_schema(PluginHost.load()))).decode())
