"""`${NAME}`, `${NAME:-default}`, `${file:PATH}` and `$$`, inside string scalars of the parsed tree, once.

In the login of a URL what is inserted is percent-encoded: a password may hold an @ or a slash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from ..base.redaction import passwords_in, remember
from .document import Node, resolve
from .problems import Problems, suggestion

MAX_SECRET_FILE_BYTES = 64 * 1024
_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)\}|\$\{")
# The part of a URL in which a login stands: up to the last @ before path, query and fragment. A reference counts as one
# letter, whatever its default holds.
_LOGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://((?:\$\{[^}]*\}|[^/?#\s])*)@")
# Variables that hold no secrets: errors without hosts and paths would help nobody.
_PLAIN = re.compile(
    r"(^|_)(NAME|HOST|HOSTNAME|PORT|USER|USERNAME|NODE|NAMESPACE|DIR|FOLDER|PATH|HOME|FILE|REGION|CLUSTER|SITE|ENV|URL)$"
)
# Replaced by a shell, but not by Lens; a $ before small letters or digits is more likely an expression.
_BARE = re.compile(r"(?<!\$)(?:\$\$)*\$([A-Z][A-Z0-9_]{2,})")
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
        bare = _BARE.search(node.value)
        if bare is not None:
            name = bare[1]
            hint = f"write ${{{name}}} for the variable, or $${name} for a dollar sign"
            self._problems.append_error(node.place, f"${name} stands for nothing; {hint}")
            node.broken = True
            return
        first, last = _userinfo(node.value)

        def replace(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            found = self._resolve_reference(node, match[1])
            if found is None:
                node.broken = True
                return ""
            if first <= match.start() < last:
                remember(found)
                return _encoded(found, is_all=match.span() == (first, last))
            if _is_plain(match[1].partition(":-")[0], found):
                for password in passwords_in(found):
                    remember(password)
            else:
                remember(found)
            return found

        node.value = _REFERENCE.sub(replace, node.value)

    def _resolve_reference(self, node: Node, reference: str | None) -> str | None:
        if reference is None:
            self._problems.append_error(node.place, "${ without }; close it, or write $$ for a dollar sign")
            return None
        if reference.startswith("file:"):
            return self._file(node, reference.removeprefix("file:"))
        name, has_default, default = reference.partition(":-")
        if not _NAME.fullmatch(name):
            self._problems.append_error(
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
            self._problems.append_error(
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
                self._problems.append_error(node.place, f"the file {path} is larger than {MAX_SECRET_FILE_BYTES} bytes")
                return None
            return content.decode().removesuffix("\n").removesuffix("\r")
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
            self._problems.append_error(node.place, f"the file {path} cannot be read: {reason}")
            return None


def _userinfo(text: str) -> tuple[int, int]:
    """Return where the login of a URL begins and ends in a text; (0, 0) where there is none."""
    found = _LOGIN.match(text)
    return found.span(1) if found is not None else (0, 0)


def _is_plain(name: str, value: str) -> bool:
    """Whether what a variable holds may be shown: a host, a path, a number, a yes or no."""
    if _PLAIN.search(name) or isinstance(resolve(value), (bool, int, float)):
        return True
    return value.lower() in ("", "yes", "no", "on", "off")


def _encoded(value: str, *, is_all: bool) -> str:
    """A value as a part of a login; where it is all of it, its first colon stands between user and password."""
    if not is_all:
        return quote(value, safe="")
    return ":".join(quote(part, safe="") for part in value.split(":", 1))
