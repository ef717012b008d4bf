"""The page's files: read once, compressed once, and named by their contents so that browsers keep them for good."""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.util
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ...base.errors import NotFound
from .bundle import bundle

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The chart library is the one of the Python package `plotly`, found without importing the package.
CHARTS = "plotly.js"
# All modules of the page in one.
SCRIPT = "page.js"
_CHARTS_FILE = "package_data/plotly.min.js"
_PLACE = "@VERSION@"


class Asset(NamedTuple):
    """One file, as it is and compressed."""

    media_type: str
    plain: bytes
    compressed: bytes


class Assets:
    """All files of the page under one version."""

    def __init__(self) -> None:
        folder = files(__package__) / "static"
        files_there = {item.name: item.read_bytes() for item in folder.iterdir() if _suffix(item.name) in TYPES}
        modules = {name[:-3]: content.decode() for name, content in files_there.items() if name.endswith(".js")}
        contents = {name: content for name, content in files_there.items() if not name.endswith(".js")}
        contents[SCRIPT] = bundle(modules, "app").encode()
        self.version = _version(contents)
        self._assets = {name: self._asset(name, content) for name, content in contents.items()}

    def named(self, name: str) -> Asset:
        """A file of the page. Raises NotFound."""
        if name == CHARTS:
            return charts_asset()
        found = self._assets.get(name)
        if found is None:
            raise NotFound(f"the page has no file {name!r}")
        return found

    def size_bytes(self) -> int:
        """The page's weight as it is sent, without the chart library."""
        return sum(len(asset.compressed) for asset in self._assets.values())

    def _asset(self, name: str, content: bytes) -> Asset:
        if name.endswith(".html"):
            content = content.replace(_PLACE.encode(), self.version.encode())
        return Asset(TYPES[_suffix(name)], content, gzip.compress(content, 9, mtime=0))


@lru_cache(maxsize=1)
def assets() -> Assets:
    """The files of this installation."""
    return Assets()


@lru_cache(maxsize=1)
def charts_asset() -> Asset:
    """The chart library. Raises NotFound with the command that installs it."""
    path = charts_path()
    if path is None:
        raise NotFound('the charts need the Python package plotly: pip install "lens-agent[server]"')
    content = path.read_bytes()
    return Asset(TYPES[".js"], content, gzip.compress(content, 6, mtime=0))


def charts_path() -> Path | None:
    """Return the path of the chart library; None without the package."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / _CHARTS_FILE
        if path.is_file():
            return path
    return None


def _version(contents: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(name.encode() + b"\0" + contents[name] + b"\0")
    try:
        digest.update(importlib.metadata.version("plotly").encode())
    except importlib.metadata.PackageNotFoundError:
        digest.update(b"no charts")
    return digest.hexdigest()[:16]


def _suffix(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""
