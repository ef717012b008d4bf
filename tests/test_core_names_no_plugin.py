"""`lens_core` names no built-in plugin, but for the few modules that advise users by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
# Names of plugins that are also words for something else.
ORDINARY = {"host", "http", "logs", "pattern", "processes", "stacks", "generic", "out_of_memory", "directory_file"}
# Modules that name plugins, each with its reason. A name that is new here belongs into the plugin itself.
ADVISING = {
    "config/first_file.py": "writes the first configuration of a user",
    "config/cluster_checks.py": "advises what to configure",
    "config/translation.py": "reads configurations of former versions",
    "config/loading.py": "adds the default store",
    "config/settings.py": "gives examples in descriptions",
    "http/state.py": "advises to add a store",
    "cli/init.py": "offers the configuration for Primus Lens",
    "cli/checks.py": "advises what to configure",
    "cli/checks_symptoms.py": "advises what to configure",
    "cli/doctor.py": "sends a row through the whole path",
    "cli/demo.py": "prints the right ledger of a job with scripted faults beside that of goodput",
    "cli/top.py": "shows the column of goodput where it is answered",
    "detection/detectors.py": "knows frameworks by the names that trackers give them",
    "detection/verdict.py": "knows which frameworks are wrappers",
    "diagnosis/hang.py": "names the evidence of its rules",
    "scaffold/linting_code.py": "knows modules that are slow to import",
    "testing/running.py": "adds a store to a test",
    "detection/log_lines/general_other_work.py": "knows the endings of checkpoints",
}


def plugin_names() -> set[str]:
    """Return the names of the built-in plugins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["entry-points"]["lens"]) - ORDINARY


def texts_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each text of a module that is no docstring, with its line."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_the_core_names_no_plugin() -> None:
    named = re.compile(rf"(?<![A-Za-z])({'|'.join(sorted(plugin_names(), key=len, reverse=True))})(?![A-Za-z])")
    found, naming = [], set()
    for path in sorted((ROOT / "lens_core").rglob("*.py")):
        place = str(path.relative_to(ROOT / "lens_core"))
        for line, text in texts_in(ast.parse(path.read_text())):
            if match := named.search(text):
                naming.add(place)
                if place not in ADVISING:
                    found.append(f"{place}:{line}: {match[0]!r} in {text[:80]!r}")
    assert found == []
    assert set(ADVISING) <= naming, "modules that name no plugin any more"
