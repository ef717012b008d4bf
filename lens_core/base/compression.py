"""Content encodings: done quickly, and undone within a limit, so that a small body never becomes gigabytes."""

from __future__ import annotations

import gzip
import io
import zlib

import cramjam

from .errors import BadRequest, PayloadTooLarge, UnsupportedMediaType

# The library copies all data after a member, so it gets a body in small pieces.
_GZIP_PIECE_BYTES = 4096
# A small piece may unpack to a thousand times its size, and is then held twice while it is appended.
_GZIP_OUTPUT_BYTES = 256 * 1024
_ZSTD_FIRST_BYTES = 64 * 1024
_ZSTD_FULL = "failed to write whole buffer"
# Of both: higher levels take longer and save a few percent more.
_LEVEL = 1


def compress(body: bytes, encoding: str) -> bytes:
    """A body in a content encoding: gzip or zstd; as it is for any other name."""
    if encoding == "gzip":
        return gzip.compress(body, _LEVEL, mtime=0)
    return bytes(cramjam.zstd.compress(body, _LEVEL)) if encoding == "zstd" else body


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Undo one content encoding: gzip, zstd, snappy (block format), or identity.

    Raises PayloadTooLarge when more than `limit_bytes` would come out, BadRequest when the data is damaged,
    UnsupportedMediaType for another encoding.
    """
    if encoding in ("", "identity"):
        result = body
    elif encoding in ("gzip", "x-gzip"):
        result = _gzip(body, limit_bytes)
    elif encoding == "zstd":
        result = _zstd(body, limit_bytes)
    elif encoding == "snappy":
        result = _snappy(body, limit_bytes)
    else:
        raise UnsupportedMediaType(f"content encoding {encoding!r} is not one of gzip, zstd, snappy, identity")
    if len(result) > limit_bytes:
        raise too_large(limit_bytes)
    return result


def too_large(limit_bytes: int) -> PayloadTooLarge:
    """The refusal of a body that is over the limit."""
    return PayloadTooLarge(f"the body is larger than {limit_bytes} bytes after decompression; send smaller batches")


def _damaged(encoding: str, error: Exception | str) -> BadRequest:
    return BadRequest(f"the body is not {encoding}: {error}")


def _gzip(body: bytes, limit_bytes: int) -> bytes:
    unpacked = io.BytesIO()  # it gives its buffer away: a list of pieces would be held twice while it is joined
    size = 0
    member = zlib.decompressobj(wbits=31)
    try:
        for start in range(0, len(body), _GZIP_PIECE_BYTES):
            piece = body[start : start + _GZIP_PIECE_BYTES]
            while piece:  # a gzip file may have several members
                if member.eof:
                    member = zlib.decompressobj(wbits=31)
                output = member.decompress(piece, min(_GZIP_OUTPUT_BYTES, limit_bytes + 1 - size))
                size += len(output)
                if size > limit_bytes:
                    raise too_large(limit_bytes)
                unpacked.write(output)
                piece = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        raise _damaged("gzip", error) from None
    if body and not member.eof:
        raise _damaged("gzip", "it ends too early")
    return unpacked.getvalue()


def unpack_zstd(body: bytes) -> bytes:
    """Undo zstd for a body that Lens packed itself, without a limit. Raises BadRequest when it is damaged."""
    try:
        return bytes(cramjam.zstd.decompress(body))
    except cramjam.DecompressionError as error:
        raise _damaged("zstd", error) from None


def _zstd(body: bytes, limit_bytes: int) -> bytes:
    if not body:
        raise _damaged("zstd", "it ends too early")
    size = min(limit_bytes, max(_ZSTD_FIRST_BYTES, 8 * len(body)))
    while True:
        # The library writes into a buffer and stops at its end, so that no body becomes more than the buffer.
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: cramjam.zstd.decompress_into(body, buffer)])
        except cramjam.DecompressionError as error:
            if str(error) != _ZSTD_FULL:
                raise _damaged("zstd", error) from None
        if size >= limit_bytes:
            raise too_large(limit_bytes)
        size = min(limit_bytes, 8 * size)


def _snappy(body: bytes, limit_bytes: int) -> bytes:
    if _snappy_length(body) > limit_bytes:
        raise too_large(limit_bytes)
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise _damaged("snappy", error) from None


def _snappy_length(body: bytes) -> int:
    """The uncompressed length that a snappy block announces: a little-endian varint of at most 32 bits."""
    length = 0
    for place, byte in enumerate(body[:5]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return length
    raise _damaged("snappy", "its length is missing")
