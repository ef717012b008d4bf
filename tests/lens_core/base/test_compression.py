from __future__ import annotations

import gzip
from collections.abc import Callable

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lens_core.base.compression import decompress
from lens_core.base.errors import BadRequest, PayloadTooLarge, UnsupportedMediaType


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data)


def _zstd(data: bytes) -> bytes:
    return zstandard.compress(data)


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _identity(data: bytes) -> bytes:
    return data


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip,
    "zstd": _zstd,
    "snappy": _snappy,
    "identity": _identity,
}


@given(data=st.binary(max_size=5000), encoding=st.sampled_from(sorted(COMPRESS)))
def test_what_was_compressed_comes_back(data: bytes, encoding: str) -> None:
    assert decompress(COMPRESS[encoding](data), encoding, 5000) == data


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_several_members_are_one_body(encoding: str) -> None:
    body = COMPRESS[encoding](b"one,") + COMPRESS[encoding](b"two")
    assert decompress(body, encoding, 100) == b"one,two"


@pytest.mark.parametrize("encoding", sorted(COMPRESS))
def test_a_bomb_is_refused(encoding: str) -> None:
    with pytest.raises(PayloadTooLarge, match="larger than 1000 bytes"):
        decompress(COMPRESS[encoding](b"x" * 1001), encoding, 1000)


def test_a_snappy_block_that_lies_about_its_length_is_refused_before_allocation() -> None:
    with pytest.raises(PayloadTooLarge):
        decompress(b"\xff\xff\xff\xff\x0f" + b"\x00" * 10, "snappy", 1 << 24)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "snappy"])
def test_a_cut_body_is_a_bad_request(encoding: str) -> None:
    whole = COMPRESS[encoding](bytes(range(256)) * 4)
    with pytest.raises(BadRequest, match=f"not {encoding}"):
        decompress(whole[: len(whole) // 2], encoding, 1 << 20)


@given(data=st.binary(min_size=1, max_size=200), encoding=st.sampled_from(["gzip", "zstd", "snappy"]))
def test_garbage_is_refused_or_small(data: bytes, encoding: str) -> None:
    try:
        assert len(decompress(data, encoding, 10_000)) <= 10_000
    except (BadRequest, PayloadTooLarge):
        assert data


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(UnsupportedMediaType, match="'br'"):
        decompress(b"", "br", 10)


@given(
    size=st.integers(min_value=-300, max_value=300).flatmap(lambda off: st.sampled_from([2**18 + off, 2**19 + off])),
    pattern=st.sampled_from([b"\0", b"abc", bytes(range(256))]),
    level=st.integers(min_value=1, max_value=9),
    members=st.integers(min_value=1, max_value=3),
)
def test_gzip_that_unpacks_in_several_steps_is_whole(size: int, pattern: bytes, level: int, members: int) -> None:
    data = (pattern * (size // len(pattern) + 1))[:size]
    assert decompress(gzip.compress(data, level) * members, "gzip", 2**24) == data * members
