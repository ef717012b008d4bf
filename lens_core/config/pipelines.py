"""The section `pipelines`: who feeds whom; and which sink answers the queries."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model.records import RECORD_KINDS
from ..plugin_api.store import Store
from .components import NAME, NAME_RULE, ComponentReader
from .conversion import FAILED, convert, fields_given, to_struct
from .document import Node
from .problems import NO_PLACE, Place, Problems, suggestion
from .settings import FilterSettings, PipelineConfig, SinkConfig, SpoolSettings

SYNTAX = "write pipelines: {NAME: {from: [SOURCE], to: [SINK]}}"


class _Written(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A pipeline as a file writes it; what is left out means all."""

    from_: list[str] | None = None
    to: list[str] | None = None
    filter: FilterSettings = FilterSettings()


class PipelineReader:
    """Reads pipelines against the components that the file names."""

    def __init__(self, components: ComponentReader, spool: SpoolSettings, problems: Problems) -> None:
        known = components.known
        self._sources = {**known["source"], **known["collector"], **known["analyzer"]}
        self._sinks = known["sink"]
        self._spool = spool
        self._problems = problems
        taken = dict.fromkeys(known["source"], "source")
        for kind in ("collector", "analyzer"):
            for name in sorted(known[kind].keys() & taken.keys()):
                place = known[kind][name].place
                problems.append_error(
                    place, f"{kind}s.{name}: a {taken[name]} has this name too; pipelines could not tell them apart"
                )
            taken.update(dict.fromkeys(known[kind], kind))

    def read_pipelines(self, section: Node | None) -> dict[str, PipelineConfig]:
        """All pipelines; without the section one, `default`, from everything to everything."""
        if section is None or section.value is None:
            return {"default": self._all("default")}
        if not isinstance(section.value, dict):
            if not section.broken:
                self._problems.append_error(
                    section.place,
                    f"pipelines: expected a mapping of names to pipelines, got {section.shape}; {SYNTAX}",
                )
            return {}
        found: dict[str, PipelineConfig] = {}
        for name, entry in section.value.items():
            if not NAME.fullmatch(name):
                place = section.key_place(name)
                self._problems.append_error(place, f"pipelines: the name {name!r} must be made of {NAME_RULE}")
            pipeline = self._pipeline(name, entry)
            if pipeline is not None:
                found[name] = pipeline
        if len(found) == len(section.value):
            self._notice_unused(found)
        return found

    def _all(self, name: str) -> PipelineConfig:
        return PipelineConfig(name=name, sources=[*self._sources], sinks=[*self._sinks], spool=self._spool)

    def _pipeline(self, name: str, entry: Node) -> PipelineConfig | None:
        path = f"pipelines.{name}"
        if isinstance(entry.value, dict):
            entry = self._lists(entry, path)
        elif entry.value is not None and not entry.broken:
            self._problems.append_error(entry.place, f"{path}: expected a mapping, got {entry.shape}; {SYNTAX}")
            return None
        written = to_struct(entry, _Written, path, self._problems, also=("spool",))
        spool = self._own_spool(entry, path)
        if isinstance(entry.value, dict):
            self._check_names(
                entry.value.get("from"), self._sources, f"{path}.from", "sources, collectors or analyzers"
            )
            self._check_names(entry.value.get("to"), self._sinks, f"{path}.to", "sinks")
            check_filter(entry.value.get("filter"), f"{path}.filter", self._problems)
        if not isinstance(written, _Written) or spool is None:
            return None
        everything = self._all(name)
        return PipelineConfig(
            name=name,
            sources=everything.sources if written.from_ is None else written.from_,
            sinks=everything.sinks if written.to is None else written.to,
            filter=written.filter,
            spool=spool,
        )

    def _lists(self, entry: Node, path: str) -> Node:
        """`from: logs` means `from: [logs]`."""
        value = dict(entry.value)
        for key, where in (("from", "sources and collectors"), ("to", "sinks")):
            child = value.get(key)
            if child is not None and isinstance(child.value, str):
                value[key] = Node([child], child.place, broken=child.broken)
            elif child is not None and isinstance(child.value, dict) and not child.broken:
                names = ", ".join(child.value) or "NAME"
                message = f"{path}.{key}: expected a list of names, got a mapping; write {key}: [{names}]"
                self._problems.append_error(child.place, f"{message}, and what they are under {where}")
                value[key] = Node([], child.place, broken=True)
        return Node(value, entry.place, keys=entry.keys)

    def _own_spool(self, entry: Node, path: str) -> SpoolSettings | None:
        """The pipeline's spool: what it does not say itself is as in the section `spool`."""
        if not isinstance(entry.value, dict) or "spool" not in entry.value:
            return self._spool
        node = entry.value["spool"]
        own = to_struct(node, SpoolSettings, f"{path}.spool", self._problems)
        if not isinstance(own, SpoolSettings):
            return None
        return msgspec.structs.replace(self._spool, **fields_given(own, node))

    def _check_names(self, node: Node | None, known: dict[str, Node], path: str, what: str) -> None:
        if node is None or node.broken or not isinstance(node.value, list):
            return
        if not node.value:
            self._problems.append_error(
                node.place, f"{path}: the list is empty; name something, or leave it out to mean all"
            )
        seen: set[str] = set()
        for item in node.value:
            if item.broken or not isinstance(item.value, str):
                continue
            if item.value not in known:
                hint = suggestion(item.name, [*known], otherwise=what)
                self._problems.append_error(item.place, f"{path}: {item.name} is not among the {what}; {hint}")
            elif item.value in seen:
                self._problems.append_error(item.place, f"{path}: {item.name} is here twice; remove one of them")
            seen.add(item.value)

    def _notice_unused(self, pipelines: dict[str, PipelineConfig]) -> None:
        sources = {name for pipeline in pipelines.values() for name in pipeline.sources}
        sinks = {name for pipeline in pipelines.values() for name in pipeline.sinks}
        for known, used, direction in ((self._sources, sources, "from"), (self._sinks, sinks, "to")):
            for name in known.keys() - used:
                if known[name].place != NO_PLACE:
                    self._problems.append_notice(
                        known[name].place, f"{name} is in no pipeline and does nothing; add it to `{direction}` of one"
                    )


def check_filter(node: Node | None, path: str, problems: Problems) -> None:
    """Kinds of record that do not exist."""
    kinds = node.value.get("kinds") if node is not None and isinstance(node.value, dict) else None
    for item in kinds.value if kinds is not None and isinstance(kinds.value, list) else []:
        if isinstance(item.value, str) and item.value not in RECORD_KINDS and not item.broken:
            hint = suggestion(item.name, [*RECORD_KINDS], otherwise="there are")
            problems.append_error(item.place, f"{path}.kinds: there is no kind of record {item.name}; {hint}")


def choose_store(
    node: Node | None, sinks: dict[str, SinkConfig], known: dict[str, Any], problems: Problems
) -> str | None:
    """The sink that answers queries: the only one that can, or the one that `store` names."""
    able = sorted(name for name, sink in sinks.items() if issubclass(sink.plugin, Store))
    if node is None:
        if len(able) > 1:
            place: Place = known[able[1]].place
            problems.append_error(
                place, f"{' and '.join(able)} can both answer queries; say which with store: {able[0]}"
            )
        return able[0] if able else None
    name = convert(node, str, "store", problems)
    if name is FAILED or name in able:
        return None if name is FAILED else str(name)
    if name in sinks:
        what = f"can: {', '.join(able)}" if able else "none of the sinks can"
        problems.append_error(node.place, f"store: the sink {name} ({sinks[name].type}) cannot answer queries; {what}")
    elif name not in known:
        problems.append_error(
            node.place,
            f"store: there is no sink {node.name}; {suggestion(node.name, able, otherwise='sinks that can')}",
        )
    return None
