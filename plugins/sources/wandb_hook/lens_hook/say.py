"""The hook's voice: one line on stderr per kind of trouble, more of them only when asked."""

from __future__ import annotations

import contextlib
import os
import sys
from urllib.parse import urlsplit, urlunsplit

_said: set[str] = set()
_verbose = False


def debug(text: str) -> None:
    """Say `text` if PRIMUS_LENS_WANDB_DEBUG is on, or `verbose()` was called."""
    if _verbose or os.environ.get("PRIMUS_LENS_WANDB_DEBUG", "").strip().lower() in ("true", "1", "yes", "on"):
        _write_line(f"lens-hook debug: {text}")


def verbose() -> None:
    """Say debug lines from now on."""
    global _verbose
    _verbose = True


def once(kind: str, text: str) -> None:
    """Say `text` unless something of the same `kind` was said before; then it is a debug line."""
    if kind in _said:
        debug(text)
        return
    _said.add(kind)
    _write_line(f"lens-hook: {text}")


def report_failure(kind: str, what: str, error: BaseException) -> None:
    """Say once that `what` went wrong; never raises, whatever the error's own text does."""
    try:
        words = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a user's own exception
        words = type(error).__name__
    once(kind, f"{what}: {words}")


def allow_again(kind: str) -> None:
    """Let the next line of this `kind` be said again."""
    _said.discard(kind)


def public_url(url: str) -> str:
    """`url` without user, password and query."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(malformed URL)"
    return urlunsplit((parts.scheme, f"[{host}]{port}" if ":" in host else host + port, parts.path, "", ""))


def _write_line(line: str) -> None:
    # A closed or broken stderr is the user's affair, and no reason to disturb anybody.
    with contextlib.suppress(Exception):
        if type(sys.stderr).__module__ == "_io" and sys.stderr.fileno() == 2:
            # Past `sys.stderr.write`, which wandb replaces: our lines are no part of the run's console log.
            os.write(2, (line + "\n").encode("utf-8", "replace"))
        else:  # a notebook, or somebody's own stream
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
