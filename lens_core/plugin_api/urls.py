"""Separates the login of a URL from the rest (a URL is logged, a password is not) and reads HOST:PORT."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from ..base.errors import LensError
from ..base.redaction import Secret, hide, passwords_in, redact, remember

__all__ = [
    "SplitUrl",
    "basic_auth",
    "hide",
    "parse_address",
    "passwords_in",
    "redact",
    "remember",
    "revealed",
    "separate_login",
    "split_login",
]

_HOW = "write the login in the settings `username` and `password`"


class SplitUrl(NamedTuple):
    """A URL without its login, and the login, decoded; empty where there was none."""

    url: str
    username: str
    password: str


def split_login(url: str) -> SplitUrl:
    """Separate a URL from its login. Raises ValueError, which quotes nothing of it, for one that cannot be used."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
    if scheme is None or scheme[1].lower() not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"its host and port cannot be told apart; {_HOW}") from None
    # A password with an @ or a slash that is not encoded: a part of it would be taken for the host, port or path.
    is_cut = port is not None and "@" in f"{parts.path}?{parts.query}#{parts.fragment}"
    if not host or is_cut or parts.netloc.count("@") > 1 or re.search(r"\s", url):
        raise ValueError(f"has no host that can be told apart from the rest; {_HOW}")
    login, _, _ = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    if not login:
        return SplitUrl(url, "", "")
    rest = url[scheme.end() :]
    return SplitUrl(url[: scheme.end()] + rest[len(login) + 1 :], unquote(username), unquote(password))


def separate_login(settings: Any) -> None:
    """Move the login of the field `url` into `username` and `password`, in a `__post_init__`. Raises ValueError."""
    try:
        url, username, password = split_login(settings.url)
    except ValueError as error:
        raise ValueError(f"url: {error}") from None
    if not username and not password:
        return
    if settings.username or settings.password is not None:
        raise ValueError("url: it has a login, and there are `username` or `password` too; remove one of them")
    remember(password)
    for name, value in (("url", url), ("username", username), ("password", Secret(password))):
        msgspec.structs.force_setattr(settings, name, value)


def basic_auth(username: str, password: Secret | None) -> tuple[str, str] | None:
    """Return the pair that an HTTP client takes for basic authentication; None without a login."""
    if not username and password is None:
        return None
    return username, password.reveal() if password is not None else ""


def revealed(headers: Mapping[str, Secret]) -> dict[str, str]:
    """Headers as they are sent."""
    return {name: value.reveal() for name, value in headers.items()}


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `[IPv6]:PORT` or `:PORT` (all addresses). Raises LensError."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise LensError(f"{address!r} is not an address; write HOST:PORT, for example 127.0.0.1:8080")
    return host.strip("[]") or "0.0.0.0", int(port)
