"""Secrets in what others send: by the names of settings and by what credentials look like, as the hook hides them.

The hook carries the same rules in `lens_hook/redact.py`, because it may import nothing; a test keeps them equal.
"""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "***"
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
