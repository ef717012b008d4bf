"""Bodies that cannot be packed: for tests in which it matters how many bytes a batch takes."""

from __future__ import annotations

from random import Random


def noise(size: int, seed: str = "") -> bytes:
    """Return a number of bytes, the same ones for the same seed."""
    return Random(seed).randbytes(size)
