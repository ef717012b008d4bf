"""`${NAME}`, `${NAME:-default}`, `${file:PATH}` and `$$`, inside string scalars of the parsed tree, once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .document import Node
from .problems import Problems, suggestion

MAX_SECRET_FILE_BYTES = 64 * 1024
_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Expansion:
    """Expands a tree in place; what comes out of a variable or a file is never looked at again.

    A mistake is a problem at the scalar, which counts as broken from then on.
    """

    def __init__(self, environ: Mapping[str, str], folder: Path, problems: Problems) -> None:
        self._environ = environ
        self._folder = folder
        self._problems = problems
        self._done: set[int] = set()

    def expand(self, node: Node) -> None:
        """Expand all string scalars of a tree; a node that several aliases share is expanded once."""
        if id(node) in self._done:
            return
        self._done.add(id(node))
        if isinstance(node.value, dict):
            for child in node.value.values():
                self.expand(child)
        elif isinstance(node.value, list):
            for child in node.value:
                self.expand(child)
        elif isinstance(node.value, str) and "$" in node.value:
            self._expand_scalar(node)

    def _expand_scalar(self, node: Node) -> None:
        def replace(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            found = self._value(node, match[1])
            if found is None:
                node.broken = True
                return ""
            return found

        node.value = _REFERENCE.sub(replace, node.value)

    def _value(self, node: Node, reference: str | None) -> str | None:
        if reference is None:
            self._problems.add(node.place, "${ without }; close it, or write $$ for a dollar sign")
            return None
        if reference.startswith("file:"):
            return self._file(node, reference.removeprefix("file:"))
        name, has_default, default = reference.partition(":-")
        if not _NAME.fullmatch(name):
            self._problems.add(
                node.place,
                f"${{{reference}}} is no variable; write ${{NAME}}, ${{NAME:-default}} or ${{file:PATH}}, "
                "or $$ for a dollar sign",
            )
            return None
        value = self._environ.get(name)
        if has_default:
            return value or default
        if value is None:
            close = suggestion(name, [*self._environ], otherwise="set")
            near = f" ({close})" if close.startswith("did you mean") else ""
            self._problems.add(
                node.place,
                f"the environment variable {name} is not set{near}; set it, or write ${{{name}:-default}}",
            )
        return value

    def _file(self, node: Node, written: str) -> str | None:
        path = self._folder / Path(written.strip()).expanduser()
        try:
            with path.open("rb") as file:
                content = file.read(MAX_SECRET_FILE_BYTES + 1)
            if len(content) > MAX_SECRET_FILE_BYTES:
                self._problems.add(node.place, f"the file {path} is larger than {MAX_SECRET_FILE_BYTES} bytes")
                return None
            return content.decode().removesuffix("\n").removesuffix("\r")
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
            self._problems.add(node.place, f"the file {path} cannot be read: {reason}")
            return None
