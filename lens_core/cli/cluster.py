"""`lens cluster`: several daemons as one."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import msgspec

from ..base.durations import duration
from ..base.errors import LensError
from ..plugin_api.commands import data_dir_option, json_option
from .client import config_option, daemon_url, request_json, url_option
from .screen import make_console
from .wording import plain


@click.group("cluster")
def command() -> None:
    """Several daemons as one (the section `cluster` of the configuration)."""


@command.command("status")
@json_option
@url_option
@data_dir_option
@config_option
def show_status(as_json: bool, url: str | None, data_dir: Path | None) -> None:
    """Show the members, who owns what, what waits, and who leads the streams.

    \b
    Examples:
      lens cluster status
      lens cluster status --json | jq .holders
    """
    found = request_json("GET", daemon_url(url, data_dir), "/api/v1/status")["shared"]
    if found is None:
        raise LensError("this daemon is alone: its configuration has no section cluster")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    _print_cluster(found)


def _print_cluster(found: dict[str, Any]) -> None:
    console = make_console(piped_width=200)
    if outages := {one["outage"] for one in found["streams"] if one.get("outage")}:
        text = f"{'; '.join(sorted(outages))}: the daemon that was asked shows what it last knew"
        console.print(plain(text, 400), style="red")
    owned = Counter(member for lease, member in found["holders"].items() if lease.startswith("partition."))
    missing = found["partitions"] - owned.total()
    console.print(
        f"cluster {found['name']}: {len(found['members'])} members, {found['partitions']} partitions"
        + (f", {missing} of them owned by nobody now" if missing else "")
        + (", unsafe (allow_unsafe)" if found["allow_unsafe"] else "")
    )
    for member, one in sorted(found["members"].items()):
        alone = [lease.partition(".")[2] for lease, holder in found["holders"].items() if holder == member]
        jobs = sorted(name.replace("=", ".") for name in alone if not name.isdigit())
        here = "*" if member == found["member"] else " "
        about = f"{here} {member}  {one['url'] or 'starting'}  version {one['version']}"
        about += f"  up {duration(time.time() - one['started_at'])}  {owned[member]} partitions"
        console.print(plain(about + (f"  runs {', '.join(jobs)}" if jobs else ""), 400))
        if one.get("unreached"):
            text = f"  does not reach {', '.join(one['unreached'])}: others deliver"
            console.print(plain(text, 400), style="red")
    if found.get("difference"):
        console.print(plain(f"these daemons have {found['difference']}", 400), style="red")
    if found.get("silent"):
        console.print(plain(f"does not answer: {', '.join(found['silent'])}", 400), style="red")
    for stream in found["streams"]:
        console.print(
            f"stream {stream['name']}: leader {stream['leader'] or 'none'}, {stream['bytes'] / 2**20:,.1f} of"
            f" {stream['max_bytes'] / 2**20:,.0f} MiB"
            + (f", refuses: {stream['refusal']}" if stream["refusal"] else "")
            + (f", without {', '.join(stream['missing'])}" if stream.get("missing") else "")
        )
    waiting = {name: records for name, records in sorted(found["lags"].items()) if records}
    for name, records in waiting.items():
        console.print(f"{name}: {records:,} records wait for a sink")
    if not waiting and not outages:
        console.print("nothing waits")
