"""Proxy exceptions: requests that stay on this machine, above all."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

ITSELF = ("localhost", "127.0.0.1", "::1")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def keep_off_proxies(environ: MutableMapping[str, str], hosts: Sequence[str] = ITSELF) -> None:
    """Add hosts (`*`: all) to NO_PROXY where a proxy is set: the clients that read it would send to them through it.

    A daemon on this machine is what most commands ask, and a company's proxy knows another machine by 127.0.0.1.
    """
    if not any(environ.get(name) or environ.get(name.upper()) for name in _PROXIES):
        return
    named = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    entries = [entry.strip() for entry in named.split(",") if entry.strip()]
    kept = ",".join([*entries, *(name for name in hosts if name not in entries)])
    environ["no_proxy"] = environ["NO_PROXY"] = kept
