"""`lens run`: one command with the hook on, leaving nothing behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from ..errors import LensError
from .client import daemon_url, data_dir_option, url_option


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@url_option
@data_dir_option
@click.option("--workload", help="The name under which the data is found (WORKLOAD_UID).")
@click.argument("arguments", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(url: str | None, data_dir: Path | None, workload: str | None, arguments: tuple[str, ...]) -> None:
    """Run COMMAND with the wandb hook on: what it logs goes to Lens too; nothing else changes.

    The hook sends to PRIMUS_LENS_API_BASE_URL if that is set, else to the daemon on this machine.

    \b
    Examples:
      lens run -- python train.py
      lens run --workload my-experiment -- torchrun --nproc-per-node 4 train.py
    """
    from lens_hook import run_environment

    program = shutil.which(arguments[0])
    if program is None:
        raise LensError(f"there is no command {arguments[0]!r}")
    environment = dict(os.environ)
    if workload:
        environment["WORKLOAD_UID"] = workload
    base_url = environment.get("PRIMUS_LENS_API_BASE_URL") if not url else None
    environment = run_environment(environment, base_url or f"{daemon_url(url, data_dir)}/api/v1")
    # The command takes this process's place, so that signals, the terminal and the exit code are its own.
    os.execve(program, list(arguments), environment)
