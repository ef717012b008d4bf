"""Bodies as they lie in the spool: packed by Zstandard, where that makes them smaller.

Rows of one run repeat names and digits: packed, a thousand of them take a fifth of the bytes (a tenth if their values
are regular, a fourth if they are noise). All that is stored is written, synced, copied from the log into the file and
deleted again; packing costs less than doing that with the rest.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import zstandard

from ...base.compression import compress

# A body below that fits into a page of the file anyway.
WORTH_BYTES = 1024
# What a packed body begins with (RFC 8878, 3.1.1); an envelope begins with a map of MessagePack.
_MAGIC = b"\x28\xb5\x2f\xfd"


class Stored(NamedTuple):
    """A body as the spool's file holds it, and what tells whether the disk has changed it."""

    body: bytes
    checksum: int

    @property
    def packed(self) -> bytes | None:
        """The body, if it is packed."""
        return self.body if self.body.startswith(_MAGIC) else None


class Opened(NamedTuple):
    """A body as it was before it was stored; if that cannot be had, what is there, and the `fault`.

    `packed` is the same body by Zstandard, if it was stored so.
    """

    body: bytes
    fault: str = ""
    packed: bytes | None = None


def pack(body: bytes, worth_bytes: float = WORTH_BYTES) -> Stored:
    """A body for the file, packed if it has so many bytes."""
    stored = compress(body, "zstd") if len(body) >= worth_bytes else body
    if len(stored) >= len(body):
        # No envelope looks packed; what does all the same is packed, so that it comes back as it was.
        stored = compress(body, "zstd") if body.startswith(_MAGIC) else body
    return Stored(stored, zlib.crc32(stored))


def unpack(stored: Stored) -> Opened:
    """Return the body that was given to `pack`. Older files hold bodies that are not packed."""
    body = stored.body
    if zlib.crc32(body) != stored.checksum:
        return Opened(body, "the batch has changed on the disk (wrong checksum)")
    if stored.packed is None:
        return Opened(body)
    try:
        return Opened(zstandard.ZstdDecompressor().decompress(body), packed=body)
    except zstandard.ZstdError as error:
        return Opened(body, f"the batch cannot be unpacked: {error}")
