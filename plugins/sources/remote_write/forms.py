"""Chooses the form of the hot path: compiled, where the build had a C compiler, else interpreted; the same code."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

from . import forward as interpreted

# "interpreted" makes Lens leave the compiled form alone.
VARIABLE = "LENS_REMOTE_WRITE_FORM"
_log = logging.getLogger("lens.remote_write")


def choose_form() -> tuple[str, Any]:
    """The name of the form that is used, and its module."""
    if os.environ.get(VARIABLE) == "interpreted":
        return "interpreted", interpreted
    try:
        from . import _forward  # type: ignore[attr-defined]
    except ImportError:
        return "interpreted", interpreted
    if source_digest() != _forward.BUILT_FROM:
        _log.warning("the compiled form of remote write was built from another forward.py; using the interpreted one")
        return "interpreted", interpreted
    return "compiled", _forward


def source_digest() -> str:
    """Tells whether a compiled form was built from forward.py as it is now."""
    return hashlib.sha256((Path(__file__).parent / "forward.py").read_bytes()).hexdigest()
