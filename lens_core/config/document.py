"""YAML (or JSON) text → a tree that knows where everything was written.

Scalars follow the YAML 1.2 core schema (`yes` is a text, `1e-3` a number, 12:30 a text), so that what JSON means and
what YAML means are the same. Anchors, aliases and merge keys work; tags do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from .problems import NO_PLACE, Place, Problems, yaml_hint

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_NODES = 100_000
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_STRING_TAG = "tag:yaml.org,2002:str"
_SCALARS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"~|null|Null|NULL|"), lambda text: None),
    (re.compile(r"true|True|TRUE"), lambda text: True),
    (re.compile(r"false|False|FALSE"), lambda text: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda text: float("nan")),
)
_JSON_SURROGATES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


@dataclass(eq=False)
class Node:
    """One value of the file: a scalar, a list of nodes, or a mapping of names to nodes.

    `written` is a scalar as it stands in the file (before `${…}` is expanded): it is what messages may show.
    `keys` are the places of a mapping's keys. A `broken` node has a problem already; nothing more is said about it.
    """

    value: Any
    place: Place = NO_PLACE
    written: str = ""
    quoted: bool = False
    keys: dict[str, Place] | None = None
    broken: bool = False

    @property
    def shape(self) -> str:
        """Describe the kind of this node in words, for messages."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list"
        if self.value is None:
            return "nothing"
        if isinstance(self.value, bool):
            return self.written or str(self.value).lower()
        return f"the number {self.written}" if isinstance(self.value, (int, float)) else f"the text {self.shown}"

    @property
    def shown(self) -> str:
        """A scalar as written, shortened, in quotes; passwords inside URLs are hidden."""
        text = re.sub(r"://[^@\s]*@", "://***@", self.written)
        return repr(text if len(text) <= 60 else text[:57] + "…")

    @property
    def is_empty(self) -> bool:
        """Whether the file has a key and nothing after its colon: no null, and no empty text in quotes."""
        return self.value is None and not self.written and not self.quoted and self.place != NO_PLACE

    @property
    def name(self) -> str:
        """A name as written: what a variable held is not shown."""
        return self.written or str(self.value)

    def key_place(self, key: str) -> Place:
        """Return the place of a key of this mapping."""
        return (self.keys or {}).get(key, self.place)


def mapping(entries: dict[str, Node], place: Place = NO_PLACE) -> Node:
    """A mapping that was not written like this in the file, standing at one place."""
    return Node(entries, place, keys=dict.fromkeys(entries, place))


def scalar(value: Any, place: Place = NO_PLACE) -> Node:
    """A scalar that was not written like this in the file, standing at one place."""
    return Node(value, place, written="" if value is None else str(value))


def parse(text: str, problems: Problems) -> Node | None:
    """The tree of a text; None, with the problem noted, when it cannot be parsed."""
    if text.lstrip()[:1] == "{":
        text = _without_surrogate_pairs(text)
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else NO_PLACE
        problem = str(error.problem or error.context)
        problems.append_error(
            place, f"this is not YAML: {problem};{yaml_hint(text, place.line, place.column, problem)}"
        )
        return None
    except yaml.reader.ReaderError as error:
        problems.append_error(
            _place_of(text, error.position), f"this is not YAML: {error.reason}; remove the character"
        )
        return None
    if root is None:
        return mapping({})
    tree = _Builder(problems).build(root)
    if tree.broken:
        return None
    if tree.value is None and not tree.quoted:
        return mapping({}, tree.place)
    if not isinstance(tree.value, dict):
        problems.append_error(
            tree.place, f"the file must be a mapping of sections (server, sources, sinks …), not {tree.shape}"
        )
        return None
    return tree


def _without_surrogate_pairs(text: str) -> str:
    """JSON writes characters beyond U+FFFF as two escapes, which YAML does not know."""

    def join_surrogates(match: re.Match[str]) -> str:
        high, low = int(match[1], 16), int(match[2], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))

    return _JSON_SURROGATES.sub(join_surrogates, text)


def _place_of(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, position - before.rfind("\n"))


class _Builder:
    """Turns yaml's own nodes into ours."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._count = 0
        self._open: set[int] = set()

    def build(self, node: yaml.Node) -> Node:
        place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
        self._count += 1
        if self._count > MAX_NODES or id(node) in self._open:
            if self._count <= MAX_NODES + 1:
                self._problems.append_error(place, "an alias that contains itself, or too many values; write them out")
            return Node(None, place, broken=True)
        self._open.add(id(node))
        try:
            return self._build(node, place)
        finally:
            self._open.discard(id(node))

    def _build(self, node: yaml.Node, place: Place) -> Node:
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return Node([self.build(item) for item in node.value], place)
        if node.tag != _STRING_TAG and node.tag != "!":
            self._problems.append_error(place, f"the tag {node.tag} is not supported; remove it")
            return Node(None, place, broken=True)
        quoted = bool(getattr(node, "style", None))
        return Node(node.value if quoted else resolve(node.value), place, written=node.value, quoted=quoted)

    def _build_mapping(self, node: yaml.MappingNode, place: Place) -> Node:
        built = Node({}, place, keys={})
        merged: list[Node] = []
        assert built.keys is not None
        for key_node, value_node in node.value:
            where = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            value = self.build(value_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._problems.append_error(where, "a key must be a text")
                continue
            key = str(key_node.value)
            if key == "<<":
                merged += value.value if isinstance(value.value, list) else [value]
            elif key in built.value:
                first = built.keys[key]
                self._problems.append_error(
                    where, f"{key} is here twice (first in line {first.line}); remove one of them"
                )
            else:
                built.value[key] = value
                built.keys[key] = where
        self._merge(built, merged)
        return built

    def _merge(self, built: Node, merged: list[Node]) -> None:
        for other in merged:
            if not isinstance(other.value, dict):
                if not other.broken:
                    self._problems.append_error(other.place, f"<< merges mappings; this is {other.shape}")
                continue
            for key, value in other.value.items():
                if key not in built.value:
                    built.value[key] = value
                    built.keys[key] = other.key_place(key)  # type: ignore[index]


def resolve(text: str) -> Any:
    """A plain scalar's value: null, a boolean, a number, or the text itself."""
    for pattern, convert in _SCALARS:
        if pattern.fullmatch(text):
            return _parse_number(text, convert)
    return text


def _parse_number(text: str, convert: Any) -> Any:
    try:
        return convert(text)
    except ValueError:  # more digits than Python converts; as a text it gets an ordinary message about its type
        return text
