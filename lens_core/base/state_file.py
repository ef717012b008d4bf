"""A small file that says how far something got: replaced as a whole, so that a crash leaves the old or the new."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

AnyState = TypeVar("AnyState", bound=msgspec.Struct)


def load_state(path: Path, kind: type[AnyState]) -> AnyState:
    """Return the stored state, or a new one of its kind. Raises msgspec.DecodeError for a file in another format."""
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else kind()


def save_state(path: Path, state: msgspec.Struct) -> None:
    """Store it for good; returns when it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(state))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
