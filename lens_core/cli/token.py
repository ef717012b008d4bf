"""`lens token`: who may send, read, administer from other machines."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from ..http.tokens import ROLES, TokenStore
from ..plugin_api.commands import data_dir_option, json_option
from .client import config_option, resolve_data_dir


@click.group("token")
def command() -> None:
    """Tokens for clients on other machines; loopback needs none.

    \b
    Examples:
      lens token create --role ingest training-cluster
      lens token list
      lens token revoke training-cluster
    """


@command.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="ingest", show_default=True, help="What it allows.")
@data_dir_option
@config_option
def create(name: str, role: str, data_dir: Path | None) -> None:
    """Make a token and print it; it is shown once and kept only as a hash."""
    click.echo(TokenStore(resolve_data_dir(data_dir)).create_token(name, role))
    click.echo(f"This is the only time that the token {name!r} is shown. A running daemon takes it at once.", err=True)


@command.command("list")
@json_option
@data_dir_option
@config_option
def list_tokens(as_json: bool, data_dir: Path | None) -> None:
    """List the tokens, without their texts."""
    tokens = TokenStore(resolve_data_dir(data_dir)).all()
    rows = [{"name": token.name, "role": token.role, "created_at": token.created_at} for token in tokens]
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
        return
    if not tokens:
        click.echo("There are no tokens; `lens token create NAME` makes one.", err=True)
    for token in tokens:
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(token.created_at))
        click.echo(f"{token.name:30} {token.role:8} {created}")


@command.command()
@click.argument("name")
@data_dir_option
@config_option
def revoke(name: str, data_dir: Path | None) -> None:
    """Forget a token; requests with it are refused from now on."""
    TokenStore(resolve_data_dir(data_dir)).revoke(name)
    click.echo(f"Token {name!r} is revoked.")
