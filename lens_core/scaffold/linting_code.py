"""Facts that the linter reads in a plugin's source, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

CodeFinding: TypeAlias = tuple[int, Literal["warning", "failed"], str]

# Modules of Lens that a plugin may import: the public names, the vocabulary, and helpers for tests.
PUBLIC = ("lens_core", "lens_core.commands", "lens_core.logs", "lens_core.records")
PUBLIC_FOLDERS = ("lens_core.plugin_api", "lens_core.testing")
_PUBLIC_WORDS = ", ".join(PUBLIC) + " and what is in " + " and ".join(PUBLIC_FOLDERS)
# Plugins of Lens, and what runs inside training: both change without notice.
_OTHERS = ("lens_plugins", "lens_hook", "lens_pytest")
_HEAVY = ("torch", "tensorflow", "jax", "transformers", "pandas", "deepspeed", "megatron", "lightning")
_BLOCKING = {
    "time.sleep": "await asyncio.sleep(…)",
    "requests.get": "httpx.AsyncClient",
    "requests.post": "httpx.AsyncClient",
    "urllib.request.urlopen": "httpx.AsyncClient",
    "subprocess.run": "asyncio.create_subprocess_exec, or isolated = True",
    "subprocess.check_output": "asyncio.create_subprocess_exec, or isolated = True",
}


def code_findings(path: Path, *, own: str) -> list[CodeFinding]:
    """Imports that are not for plugins, heavy ones at the top, and calls that would stop the daemon's event loop.

    `own` is the plugin's top-level module. A file that is no Python gives one finding.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError) as error:
        return [(getattr(error, "lineno", None) or 1, "failed", f"cannot be read: {error}")]
    return sorted([*_imports(tree, own), *_blocking_calls(tree)])


def is_public(module: str) -> bool:
    """Whether a module of Lens is one that plugins may import."""
    return module in PUBLIC or any(f"{module}.".startswith(f"{folder}.") for folder in PUBLIC_FOLDERS)


def _imports(tree: ast.Module, own: str) -> Iterator[CodeFinding]:
    at_top = set(map(id, _top_level(tree.body)))
    for node in ast.walk(tree):
        for name in _imported(node):
            top = name.partition(".")[0]
            line = getattr(node, "lineno", 1)
            if top == "lens_core" and not is_public(name):
                yield (
                    line,
                    "failed",
                    f"imports {name}; public are {_PUBLIC_WORDS}",
                )
            elif top in _OTHERS and top != own:
                yield line, "failed", f"imports {name}, the inside of something else; only lens_core is public"
            elif top in _HEAVY and top != own and id(node) in at_top:
                yield line, "failed", f"imports {top} when Lens starts; import it inside start()"


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported; a block for type checkers does not."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.Try):
            yield from _top_level([*statement.body, *statement.orelse, *statement.finalbody])
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.dump(statement.test):
            yield from _top_level([*statement.body, *statement.orelse])


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []


def _blocking_calls(tree: ast.Module) -> Iterator[CodeFinding]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.AsyncFunctionDef):
            continue
        for node in _own_nodes(function):
            name = _dotted(node.func) if isinstance(node, ast.Call) else ""
            if name in _BLOCKING:
                text = f"{name} inside async {function.name}() stops the whole daemon; use {_BLOCKING[name]}"
                yield getattr(node, "lineno", 1), "failed", text


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Everything inside a function, but not inside functions that it defines: those may run in a thread."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _own_nodes(child)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""
