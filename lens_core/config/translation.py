"""The seeds' own keys (`server.port`, `database.*`, `wandb.*`, `metrics.prometheus.*`), translated with a notice."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from .conversion import to_plain
from .document import Node, mapping, scalar
from .problems import Problems, suggestion

_DATABASE_KEYS = ("host", "port", "database", "user", "password", "sslmode", "ssl_mode", "name", "username")
_WANDB_KEYS = ("enabled", "detection_enabled", "metrics_enabled")
_PROMETHEUS_KEYS = ("enabled", "port")


def translate(root: Node, problems: Problems) -> set[str]:
    """Replace the seeds' keys in a tree by what they mean here; the answer is the sources that they switch off."""
    _server_port(root, problems)
    _database(root, problems)
    _prometheus(root, problems)
    return _wandb(root, problems)


def _pop_section(root: Node, section: str, keys: tuple[str, ...], problems: Problems) -> Node | None:
    """Remove a section of the seeds' from the tree and check its keys."""
    node: Node | None = root.value.get(section)
    if node is None or not isinstance(node.value, dict):
        return None
    del root.value[section]
    for key in node.value:
        if key not in keys:
            problems.append_error(node.key_place(key), f"{section}: unknown key {key}; {suggestion(key, keys)}")
    return node


def _section(root: Node, name: str, place_of: Node) -> Node:
    """A section of the tree, made where it is missing."""
    found = root.value.get(name)
    if found is None or found.value is None:
        found = mapping({}, place_of.place)
        root.value[name] = found
        (root.keys if root.keys is not None else {}).setdefault(name, place_of.place)
    return found  # type: ignore[no-any-return]


def _set_value(section: Node, key: str, value: Node) -> None:
    section.value[key] = value
    if section.keys is not None:
        section.keys.setdefault(key, value.place)


def _port(node: Node, path: str, problems: Problems) -> int | None:
    text = str(node.value)
    if not node.broken and text.isascii() and text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    if not node.broken:
        problems.append_error(node.place, f"{path}: expected a port from 1 to 65535, got {node.shape}")
    return None


def _server_port(root: Node, problems: Problems) -> None:
    server = root.value.get("server")
    if server is None or not isinstance(server.value, dict) or "port" not in server.value:
        return
    node = server.value.pop("port")
    port = _port(node, "server.port", problems)
    if port is None:
        return
    if "listen" in server.value:
        problems.append_error(node.place, "server.port: server.listen is there too; remove server.port")
        return
    _set_value(server, "listen", scalar(f"0.0.0.0:{port}", node.place))
    problems.append_notice(
        node.place,
        f'server.port is read as server.listen: "0.0.0.0:{port}"; '
        "clients that send no token need server.open_ingest: true",
    )


def _database(root: Node, problems: Problems) -> None:
    node = _pop_section(root, "database", _DATABASE_KEYS, problems)
    if node is None:
        return
    if any(child.broken for child in node.value.values()):
        return
    sinks = _section(root, "sinks", node)
    if not isinstance(sinks.value, dict):
        return
    if "store" in sinks.value:
        problems.append_error(node.place, "database: there is a sink `store` too; remove one of them")
        return
    dsn = scalar(_dsn(to_plain(node), node), node.place)
    dsn.written = "database"
    _set_value(sinks, "store", mapping({"type": scalar("postgresql", node.place), "dsn": dsn}, node.place))
    problems.append_notice(node.place, "database is read as sinks.store: {type: postgresql, dsn: …}")


def _dsn(values: dict[str, Any], node: Node) -> str:
    def text(*names: str) -> str:
        for name in names:
            child = node.value.get(name)
            if child is not None and values[name] is not None:
                return quote(values[name] if isinstance(values[name], str) else child.written, safe="")
        return ""

    user, password = text("user", "username"), text("password")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    port = text("port")
    address = (text("host") or "localhost") + (f":{port}" if port else "")
    mode = text("sslmode", "ssl_mode")
    return f"postgresql://{login}{address}/{text('database', 'name')}" + (f"?sslmode={mode}" if mode else "")


def _wandb(root: Node, problems: Problems) -> set[str]:
    node = _pop_section(root, "wandb", _WANDB_KEYS, problems)
    if node is None:
        return set()
    values = to_plain(node)
    for key in ("detection_enabled", "metrics_enabled"):
        if values.get(key) is False:
            problems.append_notice(
                node.value[key].place, f"wandb.{key}: false is not supported; use a pipeline with a filter instead"
            )
    sources = root.value.get("sources")
    if values.get("enabled", True) is False:
        if sources is not None and isinstance(sources.value, dict) and "wandb_api" in sources.value:
            problems.append_error(
                node.place, "wandb.enabled is false but sources.wandb_api is there; remove one of them"
            )
            return set()
        problems.append_notice(node.place, "wandb.enabled: false is read as: no source wandb_api")
        return {"wandb_api"}
    if sources is not None and isinstance(sources.value, dict) and "wandb_api" not in sources.value:
        _set_value(sources, "wandb_api", mapping({}, node.place))
    problems.append_notice(node.place, "wandb is read as sources.wandb_api: {}")
    return set()


def _prometheus(root: Node, problems: Problems) -> None:
    metrics = _pop_section(root, "metrics", ("prometheus",), problems)
    if metrics is None or "prometheus" not in metrics.value:
        return
    node = _pop_section(metrics, "prometheus", _PROMETHEUS_KEYS, problems)
    if node is None:
        return
    enabled = node.value.get("enabled")
    if enabled is not None and enabled.value is False:
        problems.append_notice(node.place, "metrics.prometheus.enabled: false only closes the second listener")
        return
    port = _port(node.value["port"], "metrics.prometheus.port", problems) if "port" in node.value else 9090
    server = _section(root, "server", node)
    if port is None or not isinstance(server.value, dict):
        return
    if "metrics_listen" in server.value:
        problems.append_error(node.place, "metrics.prometheus: server.metrics_listen is there too; remove one of them")
        return
    _set_value(server, "metrics_listen", scalar(f"0.0.0.0:{port}", node.place))
    problems.append_notice(
        node.place,
        f'metrics.prometheus is read as server.metrics_listen: "0.0.0.0:{port}"; scrapers that send no token need '
        "server.metrics_open: true",
    )
