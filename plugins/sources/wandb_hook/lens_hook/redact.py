"""Anybody's objects as plain JSON of bounded size, without secrets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 8
_MAX_ITEMS = 5000
_MAX_TEXT = 1000
_MAX_TOTAL = 256 * 1024
HIDDEN = "***"

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


class _Room:
    """The rest of the permitted size."""

    def __init__(self) -> None:
        self.items = _MAX_ITEMS
        self.bytes = _MAX_TOTAL

    def acquire(self, size: int) -> bool:
        self.items -= 1
        self.bytes -= size
        return self.items >= 0 and self.bytes >= 0


def bounded(value: Any) -> Any:
    """`value` as JSON that is at most about 256 KiB, with secrets replaced by `***`; never raises."""
    return _redact_value(value, 0, _Room())


def _redact_value(value: Any, depth: int, room: _Room) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 63 else text(str(type(value).__name__))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        return _redact_mapping(value, depth, room)
    if isinstance(value, (list, tuple, set, frozenset)) and depth < _MAX_DEPTH:
        return _sequence(value, depth, room)
    return f"<{type(value).__name__}>"  # repr would run user code and may say anything


def _redact_mapping(value: Mapping[Any, Any], depth: int, room: _Room) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in _items(value):
        name = str(key)[:200] if isinstance(key, (str, int, float, bool)) else f"<{type(key).__name__}>"
        if not room.acquire(len(name) + (min(len(item), _MAX_TEXT) if isinstance(item, str) else 8)):
            plain["..."] = "cut"
            break
        hide = is_secret_name(name) and not isinstance(item, (bool, int, float, type(None)))
        plain[text(name)] = HIDDEN if hide else _redact_value(item, depth + 1, room)
    return plain


def _items(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """The items of a mapping that another thread may be changing, or whose own methods may fail."""
    for _ in range(3):
        try:
            return list(value.items())
        except RuntimeError:  # changed while we looked; look again
            continue
        except Exception as error:  # noqa: BLE001 - the mapping's own code
            return [("...", f"unreadable: {type(error).__name__}")]
    return [("...", "changing too fast")]


def _sequence(value: Any, depth: int, room: _Room) -> list[Any]:
    plain: list[Any] = []
    for item in list(value):
        if not room.acquire(min(len(item), _MAX_TEXT) if isinstance(item, str) else 8):
            plain.append("cut")
            break
        plain.append(_redact_value(item, depth + 1, room))
    return plain


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name is likely to hold a secret (`max_tokens` and `pad_token` do not)."""
    snake = _CAMEL.sub("_", name).lower()
    return bool(_SECRET_NAME.search(snake)) and not _NOT_SECRET_NAME.search(snake)


def text(value: str) -> str:
    """A text of bounded length without what looks like a credential."""
    cut = value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "..."
    cut = _USER_INFO.sub(r"\1" + HIDDEN + "@", cut)
    cut = _SECRET_PARAMETER.sub(r"\1" + HIDDEN, cut)
    return _SECRET_TEXT.sub(HIDDEN, cut)
