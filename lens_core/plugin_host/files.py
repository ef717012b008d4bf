"""Single files as plugins, for trying things out: every `*.py` of the folder that LENS_PLUGINS_DIR names.

A file is imported as the module of its own name, from the end of the search path: so it may import its neighbours (a
name that begins with `_` is never a plugin itself), a collector of it may be isolated, and it replaces nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec

from ..base.errors import PluginError
from .loading import Plugin

FOLDER_VARIABLE = "LENS_PLUGINS_DIR"


class PluginFile(msgspec.Struct, frozen=True):
    """One file of the folder."""

    path: Path

    @property
    def entry_point(self) -> EntryPoint:
        """The file as if a distribution announced it."""
        return EntryPoint(name=self.path.stem, value=self.path.stem, group="lens")

    def refused(self) -> Plugin | None:
        """A failed plugin if the file cannot be imported under its name; None if it can."""
        reason = self._why_not()
        if not reason:
            return None
        plugin = Plugin(name=self.path.stem, module=self.path.stem, distribution="", version="")
        plugin.end_with("failed", reason)
        return plugin

    def _why_not(self) -> str:
        if not self.path.stem.isidentifier():
            return f"{self.path.name} is no name for a module; take lower case letters, digits and underscores"
        found = importlib.util.find_spec(self.path.stem)
        if found is None or found.origin is None or Path(found.origin).resolve() != self.path.resolve():
            return f"there is another module {self.path.stem}; rename the file"
        return ""


def plugin_files(folder: Path) -> list[PluginFile]:
    """The plugins of a folder, by name; the folder is on the search path afterwards. Raises PluginError without it."""
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise PluginError(f"the folder of plugins, {folder}, is not there; mend --plugins-dir or {FOLDER_VARIABLE}")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()  # a file may have come while this process runs
    return [PluginFile(path) for path in sorted(folder.glob("*.py")) if not path.name.startswith(("_", "."))]
