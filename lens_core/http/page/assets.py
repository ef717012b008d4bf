"""Files of the page: bundle, headers, the chart library.

The page's modules as one file, so that a browser asks once: made when the daemon starts, no build step.

The modules keep to a simple style (named imports on one line, `export` before a declaration, no cycles); each becomes a
function that returns its exports, so that their private names stay apart.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...base.errors import NotFound

# The chart library sets styles of its own elements; scripts have no exception.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
    )
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
# Only over TLS, where the browser has seen a valid certificate already.
STRICT_TRANSPORT = "max-age=31536000"


class SecurityHeaders:
    """Middleware that adds the headers to answers of GET; what machines send is answered as before.

    `frame_ancestors`: the origins whose pages may show the page in a frame; nobody else may.
    """

    def __init__(self, app: ASGIApp, frame_ancestors: Sequence[str] = ()) -> None:
        self._app = app
        framing = " ".join(frame_ancestors) or "'none'"
        self._headers = {"Content-Security-Policy": f"{_POLICY}; frame-ancestors {framing}", **_HEADERS}
        if not frame_ancestors:  # the older header knows no list
            self._headers["X-Frame-Options"] = "DENY"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and complete its answer."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return

        async def completing(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                if scope.get("scheme") == "https":
                    headers.setdefault("Strict-Transport-Security", STRICT_TRANSPORT)
            await send(message)

        await self._app(scope, receive, completing)


_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\./([a-z]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b", re.MULTILINE)


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """All modules (by name, without `.js`) that `entry` needs, in one. Raises ValueError for another style."""
    order: list[str] = []
    _visit(entry, modules, order, ())
    return "\n".join(_module(name, modules[name]) for name in order)


def _visit(name: str, modules: Mapping[str, str], order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"modules need each other: {' → '.join((*above, name))}")
    if name in order:
        return
    if name not in modules:
        raise ValueError(f"there is no module {name}")
    for _, needed in _IMPORT.findall(modules[name]):
        _visit(needed, modules, order, (*above, name))
    order.append(name)


def _module(name: str, source: str) -> str:
    exported = [found[1] for found in _EXPORT.findall(source)]
    body = _IMPORT.sub(_destructured, source)
    body = _EXPORT.sub(r"\1", body)
    left = _LEFT_OVER.search(body)
    if left is not None:
        line = body[left.start() :].splitlines()[0]
        raise ValueError(f"{name}.js: this import or export is of another style: {line}")
    return f"const m_{name} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _destructured(found: re.Match[str]) -> str:
    return f"const {{ {found[1].replace(' as ', ': ')} }} = m_{found[2]};"


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
