"""The way through a forward proxy, for those who ask for one; imported by nobody else."""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

VARIABLE = "PRIMUS_LENS_PROXY"
OF_THE_ENVIRONMENT = "environment"
_MAX_ANSWER_BYTES = 1 << 16
_BETWEEN_ENTRIES = re.compile(r"[,\s]+")


class Proxy(NamedTuple):
    """The address of a proxy, and the value of Proxy-Authorization, '' where its URL has no user."""

    host: str
    port: int
    login: str


def proxy_for(wanted: str, base_url: str, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy on the way to a base URL; None where there is none, or where NO_PROXY or loopback say so.

    `wanted` is a proxy's URL, or `environment`: HTTPS_PROXY, HTTP_PROXY and ALL_PROXY are asked then, and names without
    a dot, which only this network knows, are reached directly. Raises ValueError, without the URL, for one that cannot
    be used.
    """
    target = urlsplit(base_url)
    host, port = target.hostname or "", target.port or (443 if target.scheme == "https" else 80)
    if not host or _is_loopback(host) or _is_excepted(host, port, _variable(environment, "no_proxy")):
        return None
    if wanted.lower() == OF_THE_ENVIRONMENT:
        wanted = _variable(environment, f"{target.scheme}_proxy") or _variable(environment, "all_proxy")
        if not wanted or ("." not in host and ":" not in host):
            return None
    return _parse_proxy(urlsplit(wanted if "://" in wanted else f"http://{wanted}"))


def _parse_proxy(parts: SplitResult) -> Proxy:
    try:
        port = parts.port or 80
    except ValueError:
        raise ValueError("the proxy's port is no number") from None
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"a proxy must be http://HOST:PORT, not {parts.scheme}://…")
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    login = f"Basic {base64.b64encode(user.encode()).decode()}" if parts.username else ""
    return Proxy(parts.hostname, port, login)


def _variable(environment: Mapping[str, str], name: str) -> str:
    """A variable by its small name, else by its large one, as others read them."""
    return (environment.get(name) or environment.get(name.upper()) or "").strip()


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or host.endswith(".localhost") or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    """Whether NO_PROXY names a host: itself, a domain above it, its network (10.0.0.0/8), with or without a port."""
    return any(_matches_host(entry.lower(), host, port) for entry in _BETWEEN_ENTRIES.split(exceptions) if entry)


def _matches_host(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    with_port = re.fullmatch(r"(\[.*\]|[^:]*):([0-9]+)", entry)
    if with_port:
        entry = with_port[1]
        if int(with_port[2]) != port:
            return False
    name = entry.strip("[]").lstrip("*").lstrip(".")
    return bool(name) and (host == name or (address is None and host.endswith(f".{name}")))


def tunnel(sock: socket.socket, host: str, port: int, login: str) -> None:
    """Have the proxy at the other end of `sock` connect us to a host; raises OSError when it does not."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *([f"Proxy-Authorization: {login}"] if login else [])]
    sock.sendall("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while b"\r\n\r\n" not in answer:  # nothing comes after it before we have said something
        piece = sock.recv(4096)
        answer += piece
        if not piece or len(answer) > _MAX_ANSWER_BYTES:
            raise OSError("the proxy's answer to CONNECT breaks off")
    status = answer.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or not status[1].startswith(b"2"):
        raise OSError(f"the proxy answers {b' '.join(status[1:]).decode('latin-1')[:100]} to CONNECT")
