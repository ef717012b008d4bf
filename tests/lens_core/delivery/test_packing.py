from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import StepMetrics
from lens_core.delivery.spool.batches import Opened, Stored, pack, unpack
from lens_core.model.records import encode_envelope


def rows(count: int) -> bytes:
    return encode_envelope(
        [StepMetrics(data_source="wandb", row_step=step, values={"loss": step * 0.37}) for step in range(count)]
    )


@given(st.binary(max_size=200), st.integers(1, 100))
def test_what_is_unpacked_is_what_was_packed(piece: bytes, times: int) -> None:
    body = piece * times
    stored = pack(body)
    assert unpack(stored)[:2] == (body, "")


def test_what_looks_packed_comes_back_as_it_was() -> None:
    body = pack(rows(1000)).body
    assert unpack(pack(body)).body == body


def test_rows_take_a_fraction_of_their_bytes() -> None:
    body = rows(1000)
    assert len(pack(body).body) < len(body) / 4


@pytest.mark.parametrize("body", [rows(2), os.urandom(100_000)], ids=["small", "random"])
def test_what_would_gain_nothing_stays_as_it_is(body: bytes) -> None:
    assert pack(body).body == body


def test_a_changed_body_is_not_believed() -> None:
    stored = pack(rows(1000))
    changed = stored.body[:-1] + bytes([stored.body[-1] ^ 1])
    assert unpack(stored._replace(body=changed)) == Opened(
        changed, "the batch has changed on the disk (wrong checksum)"
    )


def test_a_body_that_only_looks_packed_has_a_fault() -> None:
    whole = pack(rows(1000)).body
    half = whole[: len(whole) // 2]
    found = unpack(Stored(half, zlib.crc32(half)))
    assert found.body == half
    assert "cannot be unpacked" in found.fault
