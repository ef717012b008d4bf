"""Mistakes that only show on the machine, or between components: files, the data directory, two writers of one file.

A daemon would find them at its start, or never: two sinks that share a file destroy it quietly.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ..base.self_metrics import SelfMetrics
from ..plugin_api.components import Context, Sink
from ..plugin_api.instance import ComponentConfig
from ..plugin_host.host import PluginHost
from .document import Node
from .problems import NO_PLACE, Problems
from .settings import ServerSettings, SinkConfig

logger = logging.getLogger("lens.config")

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "::"})


def check_files(server: Node | None, folder: Path, problems: Problems) -> None:
    """Certificate and key must be files that can be read, relative to the configuration's folder."""
    for key in ("tls_certificate", "tls_key"):
        node = server.value.get(key) if server is not None and isinstance(server.value, dict) else None
        if node is not None and not node.broken and isinstance(node.value, str) and node.value:
            reason = why_unreadable(folder / Path(node.value).expanduser())
            if reason:
                text = f"server.{key}: {reason}; correct the path (it begins at the configuration's folder, {folder})"
                problems.append_error(node.place, text)


def why_unreadable(path: Path) -> str:
    """Why a file cannot be read; '' if it can."""
    if path.is_dir():
        return "is a directory, and a file is needed"
    try:
        with path.open("rb"):
            return ""
    except OSError as error:
        return f"the file cannot be read: {error.strerror or error}"


def check_data_dir(node: Node | None, directory: Path, problems: Problems) -> None:
    """A data directory that is written down must be a directory that can be made and written."""
    if node is None or node.broken:
        return
    nearest = next(path for path in (directory, *directory.parents) if path.exists())
    if not nearest.is_dir():
        problems.append_error(node.place, f"data_dir: {nearest} is no directory; name one that is, or that can be made")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        owner = nearest.stat().st_uid
        problems.append_error(
            node.place,
            f"data_dir: {nearest} cannot be written by this user (it belongs to uid {owner}); choose another directory,"
            " or run as its owner",
        )


def check_sources(
    sources: dict[str, ComponentConfig], known: dict[str, Node], host: PluginHost, problems: Problems
) -> None:
    """No two sources answer one path: only the first would ever be asked.

    One that is there because nobody wrote the section is left out, with a notice: an installed plugin must not stop the
    daemon. Built-in sources go first.
    """
    taken: dict[tuple[str, str], str] = {}
    metrics = SelfMetrics()
    for name in sorted(sources, key=lambda name: not host.is_built_in("source", sources[name].type)):
        source = sources[name]
        context = Context(name=name, logger=logger, data_dir=Path(), metrics=metrics)
        try:
            routes = source.plugin(source.settings, context).routes()  # type: ignore[attr-defined]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is said where the component is made to be used
            logger.debug("The routes of %s are not known: %s", name, error)
            continue
        # One that claims some requests of a path shares it with the path's owner.
        owned = [route for route in routes if route.claims is None]
        claims = [(method, path) for route in owned for path in route.paths for method in route.methods]
        found = next((claim for claim in claims if claim in taken), None)
        if found is None:
            taken.update(dict.fromkeys(claims, name))
            continue
        what = f"{found[0]} {found[1]} is answered by the source {taken[found]} too, and only one would be asked"
        if source.written:
            problems.append_error(known[name].place, f"sources.{name}: {what}; remove one of them")
        else:
            remedy = f"to have it, write `sources:` with {name} and without {taken[found]}"
            problems.append_notice(NO_PLACE, f"the source {name} is left out: {what}; {remedy}")
            del sources[name]
            del known[name]


def check_sinks(
    sinks: Mapping[str, SinkConfig], known: Mapping[str, Node], server: ServerSettings | None, problems: Problems
) -> None:
    """No two sinks write one file, and none sends to this daemon itself."""
    writers: dict[str, str] = {}
    for name, sink in sinks.items():
        assert issubclass(sink.plugin, Sink)
        place = known[name].place
        for thing in sink.plugin.occupies(sink.settings):
            first = writers.setdefault(thing, name)
            if first != name:
                text = f"sinks.{name}: the sink {first} writes {thing} too; give each a file of its own"
                problems.append_error(place, f"{text}, or name one sink in several pipelines")
        url = getattr(sink.settings, "url", None)
        if server is not None and isinstance(url, str) and url and _is_here(url, server):
            text = f"sinks.{name}.url: that is this daemon itself (server.listen: {server.listen})"
            problems.append_error(place, f"{text}; everything would come in again: name another daemon")


def _is_here(url: str, server: ServerSettings) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for listen in filter(None, (server.listen, server.metrics_listen)):
        host, _, own_port = listen.rpartition(":")
        names = {host.strip("[]")}
        if names & _LOOPBACK:
            names |= _LOOPBACK
        if names & {"0.0.0.0", "::"}:
            names |= {socket.gethostname(), socket.getfqdn()} if parts.hostname not in _LOOPBACK else set()
        if own_port == str(port) and (parts.hostname or "") in names:
            return True
    public = urlsplit(server.public_url)
    return bool(public.hostname) and (public.hostname, public.port) == (parts.hostname, parts.port)
