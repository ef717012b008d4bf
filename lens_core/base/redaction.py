"""Keeps secrets out of whatever people read: log lines, errors, statuses.

The configuration registers each secret that it reads (`remember`); everything that leaves the process as text for
people goes through `hide`, whoever wrote it: a driver's error may quote the address that it was given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

HIDDEN = "***"
# Shorter texts are parts of too many words to be hidden, and too short to be secret.
_SHORTEST = 4
# A text that could be a word is hidden where it stands alone, so that "postgres" leaves "postgresql" as it is.
_WORD = re.compile(r"[A-Za-z]{1,12}")
_USERINFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^\s]*)@")
_CONNINFO_PASSWORD = re.compile(r"(?:^|\s)(?:ssl)?password\s*=\s*('(?:[^'\\]|\\.)*'|\S+)")

_texts: set[str] = set()
_pattern: re.Pattern[str] | None = None


def remember(text: str) -> None:
    """Hide a secret from now on, in each form in which it may be quoted; of an address, its password too."""
    global _pattern
    for secret in (text, *passwords_in(text)):
        _texts.update(form for form in _forms(secret) if len(form) >= _SHORTEST)
    _pattern = None


def forget_all() -> None:
    """Hide nothing any more, for tests."""
    global _pattern
    _texts.clear()
    _pattern = None


def hide(text: str) -> str:
    """The text with *** in place of every secret that was registered."""
    global _pattern
    if not _texts:
        return text
    if _pattern is None:
        longest_first = sorted(_texts, key=len, reverse=True)
        _pattern = re.compile("|".join(map(_expression, longest_first)))
    return _pattern.sub(HIDDEN, text)


def passwords_in(text: str) -> Iterator[str]:
    """The passwords in a URL's userinfo and in a libpq connection string.

    Userinfo ends at the last @: a password with an unencoded one in it is found whole.
    """
    found = _USERINFO.search(text)
    if found is not None:
        user, colon, password = found[1].partition(":")
        yield password if colon else user
        # A driver that splits it at the first special character quotes what comes behind it.
        yield from (part for part in re.split(r"[@/:?#%\s]", password) if len(part) > _SHORTEST)
    for match in _CONNINFO_PASSWORD.finditer(text):
        yield match[1]
        yield re.sub(r"\\(.)", r"\1", match[1].strip("'"))


def _forms(secret: str) -> Iterator[str]:
    for text in (secret, secret.strip(), unquote(secret)):
        yield text
        yield quote(text)
        yield quote(text, safe="")
        yield repr(text)[1:-1]
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield " ".join(text.split())


def _expression(text: str) -> str:
    return rf"(?<![A-Za-z]){re.escape(text)}(?![A-Za-z])" if _WORD.fullmatch(text) else re.escape(text)
