"""Files of the page and their headers.

The browser gets the modules as they are; the page names all of them, so that none waits for the one that imports it.
The chart library (uplot.js, uplot.css) is put beside them when Lens is built or installed: setup.py.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
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


TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PLACE = "@VERSION@"
_FILES_PLACE = "<!--files-->"


class Asset(NamedTuple):
    """One file, as it is and compressed."""

    media_type: str
    plain: bytes
    compressed: bytes


class Assets:
    """All files of the page under one version."""

    def __init__(self) -> None:
        folder = files(__package__) / "static"
        contents = {item.name: item.read_bytes() for item in folder.iterdir() if _suffix(item.name) in TYPES}
        self.version = _version(contents)
        self._links = _links_to(contents)
        self._assets = {name: self._asset(name, content) for name, content in contents.items()}

    def named(self, name: str) -> Asset:
        """A file of the page. Raises NotFound."""
        found = self._assets.get(name)
        if found is None:
            raise NotFound(f"the page has no file {name!r}")
        return found

    def size_bytes(self) -> int:
        """The page's weight as it is sent."""
        return sum(len(asset.compressed) for asset in self._assets.values())

    def _asset(self, name: str, content: bytes) -> Asset:
        if name.endswith(".html"):
            text = content.decode().replace(_FILES_PLACE, self._links).replace(_PLACE, self.version)
            content = text.encode()
        return Asset(TYPES[_suffix(name)], content, gzip.compress(content, 9, mtime=0))


@lru_cache(maxsize=1)
def assets() -> Assets:
    """The files of this installation."""
    return Assets()


def _links_to(contents: Mapping[str, bytes]) -> str:
    """The page's head names every style and module. Its own style comes last, which may change that of the charts.

    The modules that every view needs come before those of single views, which the browser fetches after all else.
    """
    styles = sorted((name for name in contents if _suffix(name) == ".css"), key=lambda name: name == "style.css")
    needed = _imported_by("app.js", contents, r'\bfrom "\./([^"]+)"')
    every = _imported_by("app.js", contents, r'\b(?:from |import\()"\./([^"]+)"')
    others = [name for name in every if name not in needed]
    kinds = [('"stylesheet"', styles), ('"modulepreload"', needed), ('"modulepreload" fetchpriority="low"', others)]
    return "\n".join(f'<link rel={kind} href="page/{_PLACE}/{name}">' for kind, names in kinds for name in names)


def _imported_by(name: str, contents: Mapping[str, bytes], pattern: str) -> list[str]:
    """A module and all that it imports, those that it names first before those that they import."""
    found = [name]
    for module in found:
        imported = re.findall(pattern, contents[module].decode())
        found += [one for one in dict.fromkeys(imported) if one not in found]
    return found


def _version(contents: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(name.encode() + b"\0" + contents[name] + b"\0")
    return digest.hexdigest()[:16]


def _suffix(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""
