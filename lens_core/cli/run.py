"""`lens run`: one command with the hook on, leaving nothing behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..base.data_dir import running_address
from ..base.errors import LensError
from ..plugin_api.commands import data_dir_option
from .client import config_option, daemon_url, is_answering, is_daemon_named, resolve_data_dir, url_option
from .wording import page_address, print_notice

_IDENTITY = ("workload_uid", "pod_uid", "pod_name", "namespace", "node", "rank")


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@url_option
@data_dir_option
@config_option
@click.option("--workload", help="The name under which the data is found (WORKLOAD_UID).")
@click.option("--log", is_flag=True, help="Also send the output of COMMAND; Lens parses steps and events from it.")
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    url: str | None, data_dir: Path | None, workload: str | None, log: bool, arguments: tuple[str, ...]
) -> None:
    """Run COMMAND with the wandb hook on: what it logs goes to Lens too; nothing else changes.

    The hook sends to the daemon that --url, --data-dir or --config names, else to PRIMUS_LENS_API_BASE_URL if that is
    set, else to the daemon on this machine.

    \b
    Examples:
      lens run -- python train.py
      lens run --workload my-experiment -- torchrun --nproc-per-node 4 train.py
      lens run --log -- ./train.sh      what it prints is read too, for frameworks that log nowhere else
    """
    from lens_hook import run_environment
    from lens_hook.settings import read_origin

    program = shutil.which(arguments[0])
    if program is None:
        raise LensError(f"there is no command {arguments[0]!r}")
    environment = dict(os.environ)
    if workload:
        environment["WORKLOAD_UID"] = workload
    named = is_daemon_named(url, data_dir)
    if named:
        environment.pop("PRIMUS_LENS_API_BASE_URL", None)
    base_url = environment.get("PRIMUS_LENS_API_BASE_URL")
    if base_url is None:
        address = daemon_url(url, data_dir)
        base_url = f"{address}/api/v1"
        origin = read_origin(environment)
        known = named or running_address(resolve_data_dir(data_dir)) is not None or is_answering(address)
        _print_target(address, origin, known=known)
    environment = run_environment(environment, base_url)
    if log:
        raise SystemExit(_run_and_log(program, arguments, environment))
    # The command takes this process's place, so that signals, the terminal and the exit code are its own.
    os.execve(program, list(arguments), environment)


def _print_target(address: str, origin: Mapping[str, Any], *, known: bool) -> None:
    """One line on standard error: where the data will be found, or that nobody is there to take it."""
    if known:
        workload = next(origin[name] for name in ("workload_uid", "pod_uid", "pod_name") if name in origin)
        print_notice(f"lens: this run is workload {workload}: {page_address(address, workload)}")
    else:
        print_notice(f"lens: no daemon answers on this machine (`lens up` starts one); sending to {address}")


def _run_and_log(program: str, arguments: tuple[str, ...], environment: dict[str, str]) -> int:
    from lens_hook.settings import read_origin

    from .run_command import run_and_log
    from .run_log import LineSender

    base = environment.get("PRIMUS_LENS_API_BASE_URL", "").rstrip("/")
    origin = read_origin(environment)
    # A line has these fields of its origin; labels come with the rows of the hook and the directory.
    identity = {name: origin[name] for name in _IDENTITY if name in origin}
    sender = LineSender(f"{base}/logs", environment.get("PRIMUS_LENS_API_TOKEN", "").strip(), identity)
    return run_and_log([program, *arguments[1:]], environment, sender)
