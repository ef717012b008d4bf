"""Built-in plugins use the same public API as those of third parties: they import public names of Lens only."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lens_core.scaffold.linting_code import PUBLIC, is_public

ROOT = Path(__file__).parents[1]
PLUGINS = [path for path in sorted((ROOT / "plugins").rglob("*.py")) if "lens_hook" not in path.parts]


def imports_of_lens(source: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import of `lens_core`, wherever it stands in a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "lens_core":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "lens_core")


def test_plugins_import_public_names_only() -> None:
    assert len(PLUGINS) > 100
    wrong = []
    for path in PLUGINS:
        for module, name in imports_of_lens(path.read_text()):
            exported = getattr(importlib.import_module(module), "__all__", None) if is_public(module) else ()
            is_named = not name.startswith("_") if exported is None else name in exported
            if not is_named:
                wrong.append(f"{path.relative_to(ROOT)}: {module}.{name}")
    assert not wrong, "not public: export it, with its docstring, or move it into the plugin\n" + "\n".join(wrong)


@pytest.mark.parametrize("module", ["lens_core.base.errors", "lens_core.plugin_apis", "lens_core.http.server"])
def test_the_inside_of_lens_is_not_public(module: str) -> None:
    assert not is_public(module)
    assert list(imports_of_lens(f"def f():\n    from {module} import x")) == [(module, "x")]


def test_the_page_names_every_public_module() -> None:
    page = (ROOT / "docs/plugins.md").read_text()
    own = {"__init__", "analyzer", "components", "hook_specs", "sink_answers"}
    own |= {"log_formats", "vocabulary", "instance", "commands"}
    found = {path.stem for path in (ROOT / "lens_core/plugin_api").glob("*.py")} - own
    wanted = [*PUBLIC, "lens_core.testing", *(f"lens_core.plugin_api.{name}" for name in sorted(found))]
    assert [name for name in wanted if f"`{name}`" not in page] == []
