"""The imports of the process that forks `lens` (tests/forked.py): the command, the daemon, all plugins."""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil
from importlib.metadata import entry_points

import uvloop  # noqa: F401
from uvicorn.protocols.http import httptools_impl  # noqa: F401

import lens_core.cli
import lens_core.daemon.daemon

_COMMANDS = [found.name for found in pkgutil.iter_modules(lens_core.cli.__path__, "lens_core.cli.")]
for _name in (*_COMMANDS, *(found.module for found in entry_points(group="lens"))):
    if not _name.endswith("__main__"):
        with contextlib.suppress(ImportError):  # whoever needs it says so
            importlib.import_module(_name)
# Children look through none of these objects, and so share their memory.
gc.collect()
gc.freeze()
