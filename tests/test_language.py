"""Docstrings begin with a subject or a verb, never with a relative clause, unless they are a question."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = ("lens_core", "plugins")
RELATIVE_CLAUSE = re.compile(r"(What|Who|Whose|Whom|Where|Which|When|How|So many|Of which)\b")


def begins_with_relative_clause(docstring: str) -> bool:
    """Whether the first sentence begins with a relative clause."""
    first = re.split(r"(?<=[.?!:])\s", docstring.strip(), maxsplit=1)[0]
    return RELATIVE_CLAUSE.match(first) is not None and not first.endswith("?")


def sources_of(*trees: str) -> list[Path]:
    """Return the Python files below folders of the repository."""
    return [path for tree in trees for path in sorted((ROOT / tree).rglob("*.py"))]


def docstrings_of(path: Path) -> list[str]:
    """Return the docstrings of a module, its classes and its functions."""
    nodes = ast.walk(ast.parse(path.read_text()))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [text for node in nodes if isinstance(node, documented) and (text := ast.get_docstring(node))]


def test_no_docstring_begins_with_a_relative_clause() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in sources_of(*TREES)
        for text in docstrings_of(path)
        if begins_with_relative_clause(text)
    ]
    assert found == []


def test_relative_clauses_are_recognised() -> None:
    assert begins_with_relative_clause("What waits for a sink.")
    assert begins_with_relative_clause("How many: of all.")
    assert not begins_with_relative_clause("Which pods are there? Those of the directory.")
    assert not begins_with_relative_clause("The backlog of a sink.")
    assert not begins_with_relative_clause("However large it is.")
