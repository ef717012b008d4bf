"""Names Lens' own commands and gives a plugin's commands (hook `lens_commands`) the options that Lens' own have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# In the order in which `lens --help` lists them.
OWN_COMMANDS = (
    "up",
    "demo",
    "run",
    "hook",
    "init",
    "validate",
    "schema",
    "plugins",
    "plugin",
    "graph",
    "explain",
    "status",
    "diagnose",
    "show",
    "top",
    "tap",
    "doctor",
    "replay",
    "token",
    "cluster",
    "collect",
)


def data_dir_option(function: F) -> F:
    """The option --data-dir."""
    return click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the daemon keeps its spool and database [default: $LENS_DATA_DIR, or a folder of the user's].",
    )(function)


def json_option(function: F) -> F:
    """The option --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)
