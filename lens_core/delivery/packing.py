"""Bodies as they lie in the spool: packed by Zstandard, where that makes them smaller.

Rows of one run repeat names and digits: packed, they take about a tenth of the bytes, which are written, synced, copied
from the log into the file and deleted again. Packing costs less than writing the rest would.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import zstandard

# Higher levels take longer and save a few percent more.
_LEVEL = 1
# A body below that fits into a page of the file anyway.
_WORTH_BYTES = 1024
# What a packed body begins with (RFC 8878, 3.1.1); an envelope begins with a map of MessagePack.
_MAGIC = b"\x28\xb5\x2f\xfd"


class Stored(NamedTuple):
    """A body as the spool's file holds it, and what tells whether the disk has changed it."""

    body: bytes
    checksum: int


class Opened(NamedTuple):
    """A body as it was before it was stored; if that cannot be had, what is there, and the `fault`."""

    body: bytes
    fault: str = ""


def pack(body: bytes) -> Stored:
    """A body for the file."""
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(body) if len(body) >= _WORTH_BYTES else body
    smaller = min(packed, body, key=len)
    return Stored(smaller, zlib.crc32(smaller))


def unpack(stored: Stored) -> Opened:
    """What was given to `pack`. Older files hold bodies that are not packed."""
    body = stored.body
    if zlib.crc32(body) != stored.checksum:
        return Opened(body, "the batch has changed on the disk (wrong checksum)")
    if not body.startswith(_MAGIC):
        return Opened(body)
    try:
        return Opened(zstandard.ZstdDecompressor().decompress(body))
    except zstandard.ZstdError as error:
        return Opened(body, f"the batch cannot be unpacked: {error}")
