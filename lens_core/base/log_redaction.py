"""Hides secrets in lines of training logs, which print settings, commands and headers in any form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .redaction import HIDDEN, hide, is_secret_name, redact_text

_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----")
_NAME = r"(?P<name>[A-Za-z][\w\-./]{1,80})"
_VALUE = r"(?P<value>\"[^\"]*\"?|'[^']*'?|(?:Basic|Bearer|Token|Digest)\s+\S+|[^\s,;&'\"\])}]+)"
# `name=value`, `name: value`, `"name": "value"`, and `--name value` of a command.
_SETTING = re.compile(rf"{_NAME}(?P<between>\\?[\"']?\s*(?:=>|[:=])\s*\\?){_VALUE}")
_OPTION = re.compile(rf"(?P<dashes>(?<!\S)--?){_NAME}(?P<between>\s+){_VALUE}")
# Switches and absent values under such a name are no secrets.
_HARMLESS = frozenset({"true", "false", "none", "null", "yes", "no"})


def redact_lines(lines: Iterable[str]) -> Iterator[str]:
    """The lines of one stream, in their order, without what looks like a credential; private keys as a whole."""
    in_key = False
    for line in lines:
        if in_key:
            in_key = _KEY_ENDS.search(line) is None
            yield HIDDEN
            continue
        begins = _KEY_BEGINS.search(line)
        if begins is not None:
            in_key = _KEY_ENDS.search(line, begins.end()) is None
            line = line[: begins.start()] + HIDDEN
        yield redact_line(line)


def redact_line(line: str) -> str:
    """One line without what looks like a credential, and without the secrets of the daemon's configuration."""
    hidden = _SETTING.sub(_hide_value, hide(redact_text(line)))
    return _OPTION.sub(_hide_value, hidden)


def _hide_value(found: re.Match[str]) -> str:
    value = found["value"]
    if not is_secret_name(found["name"]) or value.strip("'\"").lower() in _HARMLESS or value == HIDDEN:
        return found[0]
    return found[0][: found.start("value") - found.start()] + HIDDEN
