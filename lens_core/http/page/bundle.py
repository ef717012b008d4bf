"""The page's modules as one file, so that a browser asks once: made when the daemon starts, no build step.

The modules keep to a simple style (named imports on one line, `export` before a declaration, no cycles); each becomes a
function that returns its exports, so that their private names stay apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\./([a-z]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b", re.MULTILINE)


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """All modules (by name, without `.js`) that `entry` needs, in one. Raises ValueError for another style."""
    order: list[str] = []
    _visit(entry, modules, order, ())
    return "\n".join(_module(name, modules[name]) for name in order)


def _visit(name: str, modules: Mapping[str, str], order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"modules need each other: {' → '.join((*above, name))}")
    if name in order:
        return
    if name not in modules:
        raise ValueError(f"there is no module {name}")
    for _, needed in _IMPORT.findall(modules[name]):
        _visit(needed, modules, order, (*above, name))
    order.append(name)


def _module(name: str, source: str) -> str:
    exported = [found[1] for found in _EXPORT.findall(source)]
    body = _IMPORT.sub(_destructured, source)
    body = _EXPORT.sub(r"\1", body)
    left = _LEFT_OVER.search(body)
    if left is not None:
        line = body[left.start() :].splitlines()[0]
        raise ValueError(f"{name}.js: this import or export is of another style: {line}")
    return f"const m_{name} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _destructured(found: re.Match[str]) -> str:
    return f"const {{ {found[1].replace(' as ', ': ')} }} = m_{found[2]};"
