"""Docstrings begin with a subject or a verb; words that are not the field's do not come back."""

from __future__ import annotations

import ast
import re
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = ("lens_core", "plugins")
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
# Metaphors and habits of speech, each with the word to write instead. Code in backticks is not looked at.
WORDS = {
    r"mend(s|ed|ing)?": "fix, repair",
    r"tid(y|ies|ied|ying)": "clean up",
    r"again and again": "repeatedly, retrying",
    r"doors?": "gate",
    r"(crowds?|printing press|orphanage|remembering)": "the term of the field",
    r"until somebody says stop": "until stopped",
    r"something went wrong inside": "internal error; details are in the log",
    r"what became of": "the outcome of",
}
UNWANTED = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
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
        for path in sources_of(*TREES, "benchmarks", "tests")
        for text in docstrings_of(path)
        if begins_with_relative_clause(text)
    ]
    assert found == []


@cache
def texts_of(path: Path) -> list[tuple[int, str]]:
    """Return the comments and the texts with blanks of a module, each with its line."""
    with tokenize.open(path) as file:
        tokens = list(tokenize.generate_tokens(file.readline))
    return [
        (token.start[0] + number, line)
        for token in tokens
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string)
        for number, line in enumerate(token.string.splitlines())
    ]


def without_code(line: str) -> str:
    """Return a line without what stands in backticks, is an attribute, or stands in braces."""
    return re.sub(r"`[^`]*`|\w+\.\w[\w.]*|\{[^}]*\}|\b\w+\(|\w*_\w+", "", line)


def test_no_comment_begins_with_a_relative_clause() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path in sources_of(*TREES, "benchmarks")
        for number, line in texts_of(path)
        if line.startswith("# ") and RELATIVE_CLAUSE.match(line[2:]) and not line.endswith("?")
    ]
    assert found == []


def test_no_unwanted_word_comes_back() -> None:
    lines = [
        (str(path.relative_to(ROOT)), number, line) for path in sources_of(*TREES) for number, line in texts_of(path)
    ]
    for page in PAGES:
        text = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), (ROOT / page).read_text(), flags=re.M | re.S)
        lines += [(page, number, line) for number, line in enumerate(text.splitlines(), 1)]
    found = [
        f"{place}:{number}: {match[0]!r} in {line.strip()}"
        for place, number, line in lines
        for match in UNWANTED.finditer(without_code(line))
    ]
    assert found == []


def test_relative_clauses_are_recognised() -> None:
    assert begins_with_relative_clause("What waits for a sink.")
    assert begins_with_relative_clause("How many: of all.")
    assert not begins_with_relative_clause("Which pods are there? Those of the directory.")
    assert not begins_with_relative_clause("The backlog of a sink.")
    assert not begins_with_relative_clause("However large it is.")
