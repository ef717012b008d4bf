"""Keeps secrets out of logs, errors and records.

Keeps secrets out of whatever people read: log lines, errors, statuses.

The configuration registers each secret that it reads (`remember`); everything that leaves the process as text for
people goes through `hide`, whoever wrote it: a driver's error may quote the address that it was given.

Secrets in what others send: by the names of settings and by what credentials look like, as the hook hides them.

The hook carries the same rules in `lens_hook/redact.py`, because it may import nothing; a test keeps them equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote


class Secret:
    """A secret setting; `reveal()` is the only way to its text.

    It is never part of a repr, a log line, an error or an encoded configuration.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


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
        if colon or not found[0].lower().startswith("postgres"):  # whose users are no tokens
            yield password if colon else user
        # A driver that splits it at the first special character quotes what comes after it.
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


_MAX_DEPTH = 100

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_NAME = re.compile(
    r"secret|passw(?:or)?d|credential|private_?key|api_?key|access_?key|auth_?key|encryption_?key"
    r"|(?:^|[_\-./ ])(?:pwd|token|auth|authorization|bearer|cookie|dsn|connection_string)$"
)
_NOT_SECRET_NAME = re.compile(r"(?:pad|eos|bos|unk|sep|cls|mask|special|image|video|stop|start|end)_token$")
_SECRET_TEXT = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w\-]{16,}"
    r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|xox[abprs]-[\w\-]{10,}|AIza[\w\-]{30,}|wandb_v1_\w{16,}|local-[0-9a-f]{40}"
    r"|eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*|Bearer +[\w\-.=+/]{8,})"
)
_USER_INFO = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*://)[^/\s@]+@")
_SECRET_PARAMETER = re.compile(r"(?i)([?&;\s][\w\-]*(?:token|key|secret|password|signature|sig)=)[^&;\s]+")


def redact(value: Any, depth: int = 0) -> Any:
    """JSON without secrets, at any depth; what lies too deep to be looked at is cut."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict | list | tuple) and depth >= _MAX_DEPTH:
        return "cut"
    if isinstance(value, dict):
        return {
            redact_text(name) if isinstance(name, str) else name: _redact_item(name, item, depth)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item, depth + 1) for item in value]
    return value


def _redact_item(name: Any, item: Any, depth: int) -> Any:
    # Numbers and switches of such names are settings, such as `use_auth: true`.
    if is_secret_name(str(name)) and not isinstance(item, bool | int | float | type(None)):
        return HIDDEN
    return redact(item, depth + 1)


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name is likely to hold a secret (`max_tokens` and `pad_token` do not)."""
    snake = _CAMEL.sub("_", name).lower()
    return bool(_SECRET_NAME.search(snake)) and not _NOT_SECRET_NAME.search(snake)


def redact_text(text: str) -> str:
    """A text without what looks like a credential."""
    hidden = _USER_INFO.sub(r"\1" + HIDDEN + "@", text)
    hidden = _SECRET_PARAMETER.sub(r"\1" + HIDDEN, hidden)
    return _SECRET_TEXT.sub(HIDDEN, hidden)
