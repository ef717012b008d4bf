"""The configuration: one YAML (or JSON) file, or none → a typed `Config`; every problem at once, at its place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..base.data_dir import default_data_dir
from ..delivery.sending.policy import DeliverySettings
from ..plugin_api.instance import ComponentConfig
from ..plugin_host.host import PluginHost
from ..plugin_host.info import ComponentKind
from .cluster_checks import check_cluster
from .components import ComponentReader
from .conversion import FAILED, convert, to_struct
from .document import MAX_FILE_BYTES, Node, mapping, parse, scalar
from .expansion import Expansion
from .machine_checks import check_data_dir, check_files, check_sinks, check_sources
from .pipelines import PipelineReader, check_filter, choose_store
from .problems import NO_PLACE, InvalidConfiguration, Place, Problem, Problems, suggestion
from .settings import (
    AnalyzerConfig,
    ClusterSettings,
    CollectorConfig,
    Config,
    FilterSettings,
    PipelineConfig,
    ServerSettings,
    SinkConfig,
    SpoolSettings,
)
from .translation import translate

SECTIONS = (
    "server",
    "data_dir",
    "spool",
    "delivery",
    "sources",
    "collectors",
    "sinks",
    "detectors",
    "analyzers",
    "pipelines",
    "store",
    "cluster",
)
BUILT_IN = "(built-in configuration)"


def load_config(
    path: Path | None, host: PluginHost, environ: Mapping[str, str] | None = None, data_dir: Path | None = None
) -> Config:
    """The configuration of a file, or the built-in one; `data_dir` wins over the file's.

    Raises InvalidConfiguration (a ConfigurationError) with everything that is wrong, as `file:line:column: what`.
    """
    environ = os.environ if environ is None else environ
    if path is None:
        config = parse_config("", BUILT_IN, host, environ, folder=Path(), data_dir=data_dir)
    else:
        config = parse_config(read_text(path), str(path), host, environ, folder=path.parent, data_dir=data_dir)
    return msgspec.structs.replace(config, file=path)


def parse_config(
    text: str, file: str, host: PluginHost, environ: Mapping[str, str], *, folder: Path, data_dir: Path | None = None
) -> Config:
    """As load_config, from a text; `file` is its name in messages, `folder` where its relative paths begin."""
    problems = Problems(file)
    root = parse(text, problems)
    if root is None:
        raise InvalidConfiguration(problems.found)
    Expansion(environ, folder, problems).expand(root)
    without = translate(root, problems)
    config = _Reader(root, host, problems, without).config(environ, folder, data_dir)
    problems.raise_if_any()
    assert config is not None
    return config


def read_data_dir(path: Path, environ: Mapping[str, str]) -> Path:
    """The data directory of a configuration, of which nothing else is looked at. Raises InvalidConfiguration."""
    problems = Problems(str(path))
    root = parse(read_text(path), problems)
    node = root.value.get("data_dir") if root is not None else None
    if node is not None:
        Expansion(environ, path.parent, problems).expand(node)
    problems.raise_if_any()
    if node is None or not isinstance(node.value, str):
        return default_data_dir(environ).absolute()
    return (path.parent / Path(node.value).expanduser()).absolute()


def read_text(path: Path) -> str:
    """The text of a configuration file; raises InvalidConfiguration when it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}; check the path and its permissions"
        raise InvalidConfiguration([Problem(str(path), NO_PLACE, reason)]) from None
    if len(content) > MAX_FILE_BYTES:
        raise InvalidConfiguration([Problem(str(path), NO_PLACE, f"is larger than {MAX_FILE_BYTES} bytes")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        place = Place(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise InvalidConfiguration([Problem(str(path), place, "this is not UTF-8; save the file as UTF-8")]) from None


class _Reader:
    """Reads the sections in their order."""

    def __init__(self, root: Node, host: PluginHost, problems: Problems, without: set[str]) -> None:
        self._problems = problems
        self._without = without
        self._host = host
        self._root: dict[str, Node] = root.value
        for key in self._root:
            if key not in SECTIONS:
                hint = self._outdented(key) or _server_hint(key) or suggestion(key, SECTIONS)
                problems.append_error(root.key_place(key), f"unknown section {key}; {hint}")
        self._delivery = self._struct("delivery", DeliverySettings)
        self._components = ComponentReader(host, problems, self._delivery or DeliverySettings())

    def _outdented(self, key: str) -> str:
        """A hint for what belongs to the empty section above it and is not indented."""
        names = [*self._root]
        for above in reversed(names[: names.index(key)]):
            if above in SECTIONS:
                return f"indent it, if it belongs to {above}:" if self._root[above].is_empty else ""
        return ""

    def config(self, environ: Mapping[str, str], folder: Path, data_dir: Path | None) -> Config | None:
        server = self._struct("server", ServerSettings)
        spool = self._struct("spool", SpoolSettings)
        sources = self._read_sources()
        check_sources(sources, self._components.known["source"], self._host, self._problems)
        collectors = self._components.read_section("collector", self._root.get("collectors"))
        sinks = self._sinks()
        detectors = self._merged("detector")
        analyzers = self._merged("analyzer")
        readers = PipelineReader(self._components, spool or SpoolSettings(), self._problems)
        pipelines = readers.read_pipelines(self._root.get("pipelines"))
        store = choose_store(self._root.get("store"), sinks, self._components.known["sink"], self._problems)
        directory = self._data_dir(environ, folder, data_dir)
        check_files(self._root.get("server"), folder, self._problems)
        if data_dir is None:
            check_data_dir(self._root.get("data_dir"), directory, self._problems)
        check_sinks(sinks, self._components.known["sink"], server, self._problems)
        section = self._root.get("cluster")
        has_cluster = section is not None and section.value is not None
        cluster = self._struct("cluster", ClusterSettings) if has_cluster else None
        check_cluster(cluster, sinks, self._components.known["sink"], pipelines, section, self._problems)
        if server is None or spool is None or self._delivery is None:
            return None
        return Config(
            server=server,
            data_dir=directory,
            spool=spool,
            sources=sources,
            collectors=collectors,
            sinks=sinks,
            detectors=detectors,
            disabled_detectors=sorted(self._components.disabled["detector"]),
            analyzers=analyzers,
            pipelines=pipelines,
            store=store,
            notices=self._problems.notices,
            cluster=cluster,
        )

    def _struct(self, name: str, kind: Any) -> Any:
        found = to_struct(self._root.get(name, Node(None)), kind, name, self._problems)
        return None if found is FAILED else found

    def _read_sources(self) -> dict[str, ComponentConfig]:
        section = self._root.get("sources")
        if section is not None and section.value is not None:
            return self._components.read_section("source", section)
        found = self._components.defaults("source")
        for name in self._without:
            found.pop(name, None)
            self._components.known["source"].pop(name, None)
        return found

    def _sinks(self) -> dict[str, SinkConfig]:
        section = self._root.get("sinks")
        if section is None or section.value is None:
            section = mapping({"store": mapping({"type": scalar("postgresql")})})
        if isinstance(section.value, dict):
            for name, entry in section.value.items():
                if isinstance(entry.value, dict):
                    check_filter(entry.value.get("filter"), f"sinks.{name}.filter", self._problems)
        return self._components.read_section("sink", section)

    def _merged(self, kind: ComponentKind) -> dict[str, Any]:
        """Return what a kind's section holds, and all others that need no settings and are not switched off."""
        configured = self._components.read_section(kind, self._root.get(f"{kind}s"))
        found = {**self._components.defaults(kind), **configured}
        return {name: found[name] for name in sorted(found) if name not in self._components.disabled[kind]}

    def _data_dir(self, environ: Mapping[str, str], folder: Path, data_dir: Path | None) -> Path:
        node = self._root.get("data_dir")
        if data_dir is not None or node is None:
            return (data_dir or default_data_dir(environ)).absolute()
        text = convert(node, Annotated[str, Meta(min_length=1)], "data_dir", self._problems)
        return (folder / Path(str(text)).expanduser()).absolute()


__all__ = [
    "AnalyzerConfig",
    "ClusterSettings",
    "CollectorConfig",
    "ComponentConfig",
    "Config",
    "FilterSettings",
    "InvalidConfiguration",
    "PipelineConfig",
    "ServerSettings",
    "SinkConfig",
    "SpoolSettings",
    "load_config",
    "parse_config",
    "read_text",
]


def _server_hint(key: str) -> str:
    """Say where a key of the section `server` belongs; '' for any other."""
    is_known = key in ServerSettings.__struct_encode_fields__
    return f"write it under server: {{{key}: …}}" if is_known else ""
