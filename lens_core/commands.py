"""Public names for a plugin's commands (hook `lens_commands`): options, progress, the daemon, the store, plugins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path

from .cli.client import config_option, daemon_url, find_workload, request_json, url_option
from .cli.wording import print_text
from .plugin_api.commands import data_dir_option, json_option
from .plugin_api.store import Store
from .plugin_host.host import PluginHost

__all__ = [
    "PluginHost",
    "config_option",
    "daemon_url",
    "data_dir_option",
    "find_workload",
    "json_option",
    "open_store",
    "print_text",
    "request_json",
    "show_progress",
    "url_option",
]


def open_store(config_file: Path | None, data_dir: Path | None = None) -> AbstractAsyncContextManager[Store]:
    """Start the store of a configuration (None: the default one) and stop it at the end of the block.

    Works beside a running daemon; where none runs on the data directory, none can start meanwhile. Raises LensError.
    """
    from .daemon.store_access import open_store as opened  # only here: it brings the whole daemon along

    return opened(config_file, data_dir)


def show_progress(title: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
    """Return a function to call with the amount of work done so far; `total` is None where it is not known.

    Shows a bar on a terminal and a line every few seconds elsewhere, both on standard error.
    """
    from .cli.screen import progress

    return progress(title, total)
