"""Functions are named by what they do to what: no name stands for more than three different things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = ("lens_core", "plugins")
MOST = 3
# Interfaces without a base class: what runs is started and stopped, what holds something is closed, a module of a
# command defines `command`, a group of routes returns its `routes`.
CONVENTIONS = {"start", "stop", "close", "command", "routes"}
# Verbs that say nothing without their object, and those that are no terms of the field.
ALONE = {
    *("take", "add", "do", "get", "put", "give", "hear", "tell", "say", "look", "ask", "mend", "tidy", "told", "meet"),
    *("keep", "kept", "learn", "lose", "pass"),
}
# Names of DLRover's client.
PUBLIC = {("MasterConnection", "get")}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = tuple[str, ast.ClassDef | None, Function]


def definitions_in(node: ast.AST, path: str, owner: ast.ClassDef | None = None) -> Iterator[Definition]:
    """Yield every function below a node, with its file and the class it is a method of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield path, owner, child
            yield from definitions_in(child, path)
        else:
            yield from definitions_in(child, path, child if isinstance(child, ast.ClassDef) else owner)


def methods_of(owner: ast.ClassDef) -> set[str]:
    """Return the names of the methods that a class itself defines."""
    return {item.name for item in owner.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}


def bases_of(owner: ast.ClassDef) -> list[str]:
    """Return the last parts of the names of a class's bases."""
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in owner.bases]
    return [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in plain]


class Classes:
    """All classes by name, to find the interface that a method belongs to."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._by_name: dict[str, list[ast.ClassDef]] = defaultdict(list)
        for tree in trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._by_name[node.name].append(node)
        every = [owner for owners in self._by_name.values() for owner in owners]
        self._protocols = [owner for owner in every if "Protocol" in bases_of(owner)]

    def interface(self, method: str, owner: ast.ClassDef) -> str:
        """Return the furthest base or the protocol that declares a method; the class itself if there is none."""
        for base in bases_of(owner):
            for parent in self._by_name[base]:
                if parent is not owner and method in self._all_methods(parent):
                    return self.interface(method, parent)
        for protocol in self._protocols:
            if method in methods_of(protocol) and methods_of(protocol) <= self._all_methods(owner):
                return protocol.name
        return owner.name

    def _all_methods(self, owner: ast.ClassDef) -> set[str]:
        parents = [parent for base in bases_of(owner) for parent in self._by_name[base] if parent is not owner]
        return methods_of(owner).union(*map(self._all_methods, parents))


def is_no_function(function: Function) -> bool:
    """Whether a definition is an attribute (a property), or one form of an overload."""
    names = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(name.endswith(("property", ".setter", "overload")) for name in names)


def things_by_name(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return for each function name the different things that have it."""
    classes, things = Classes(trees), defaultdict[str, set[str]](set)
    for path, owner, function in (found for place, tree in trees.items() for found in definitions_in(tree, place)):
        if function.name.startswith("__") or is_no_function(function):
            continue
        if any("hookimpl" in ast.unparse(one) or "hookspec" in ast.unparse(one) for one in function.decorator_list):
            thing = "the hook"
        elif owner is None:
            thing = f"{path}:{function.lineno}"
        else:
            thing = f"class {classes.interface(function.name, owner)}"
        things[function.name].add(thing)
    return things


@cache
def parsed_trees() -> dict[str, ast.Module]:
    """Parse every module of the product."""
    paths = [path for tree in TREES for path in sorted((ROOT / tree).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


def test_no_name_stands_for_more_than_three_things() -> None:
    things = things_by_name(parsed_trees())
    found = {name: sorted(of) for name, of in things.items() if len(of) > MOST and name not in CONVENTIONS}
    assert found == {}


def test_no_verb_stands_without_its_object() -> None:
    trees = parsed_trees()
    classes = Classes(trees)
    found = [
        f"{path}:{function.lineno}: {function.name}"
        for path, tree in trees.items()
        for _, owner, function in definitions_in(tree, path)
        if function.name.strip("_") in ALONE
        and (owner is None or (classes.interface(function.name, owner), function.name) not in PUBLIC)
    ]
    assert found == []


def test_the_count_knows_interfaces() -> None:
    code = """
class Base:
    def read(self): ...
class One(Base):
    def read(self): ...
class Reads(Protocol):
    def read(self): ...
    def size(self): ...
class Two:
    def read(self):
        def read(): ...
    def size(self): ...
class Three:
    @property
    def read(self): ...
"""
    assert things_by_name({"x.py": ast.parse(code)})["read"] == {"class Base", "class Reads", "x.py:11"}
