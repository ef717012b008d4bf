from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.http import Http, HttpSettings, classify

from lens_core import BatchLimits, Delivered, Poisoned, Rejected, Retry, Secret, StepMetrics
from lens_core.base.compression import decompress
from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.model.records import decode_envelope
from lens_core.pipeline.pipeline import Pipeline
from lens_core.testing import HttpReceiver, make_context, until

Compression = Literal["zstd", "gzip", "none"]
ARRIVAL = 1_700_000_000.0


@given(status=st.integers(100, 599), body=st.binary(max_size=200), size=st.integers(0, 5))
def test_every_answer_is_understood_and_only_an_honest_one_is_believed(status: int, body: bytes, size: int) -> None:
    answer = classify(status, {}, body, size)
    assert isinstance(answer, (Delivered, Retry, Rejected, Poisoned))
    if isinstance(answer, (Delivered, Rejected)):
        assert 200 <= status < 300
        assert b"success" in body


@pytest.mark.parametrize("status", [401, 403, 404, 408, 425, 429, 500, 502, 503, 301])
def test_what_a_person_or_time_can_mend_is_tried_again(status: int) -> None:
    assert isinstance(classify(status, {"retry-after": "7"}, b"", 1), Retry)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_what_will_never_be_taken_is_poison(status: int) -> None:
    assert isinstance(classify(status, {}, b"no", 1), Poisoned)


def test_rejections_out_of_range_or_of_another_type_are_ignored() -> None:
    body = b'{"success": true, "rejected": [{"index": 1, "reason": "x"}, {"index": 9}, {"index": "0"}]}'
    assert classify(200, {}, body, 2) == Rejected({1: "x"})


def test_the_token_is_not_in_the_settings_repr() -> None:
    assert "hunter2" not in repr(HttpSettings(url="http://x", token=Secret("hunter2")))


def rows(count: int) -> list[StepMetrics]:
    return [StepMetrics(data_source="wandb", row_step=step, values={"loss": step * 0.37}) for step in range(count)]


async def forward(folder: Path, compression: Compression, records: list[StepMetrics]) -> list[tuple[str, bytes]]:
    """What comes of records that go through a pipeline: the encoding and the body of each request."""
    async with HttpReceiver(answer=lambda received: b'{"success": true}') as receiver:
        sink = Http(HttpSettings(url=receiver.url, compression=compression), make_context("web", folder))
        limits = BatchLimits(max_wait_seconds=0.0)
        spool = Spool(folder / "x.spool")
        slot = SinkSlot(name="web", sink=sink, limits=limits)
        pipeline = Pipeline("p", spool, [slot], metrics=SelfMetrics(), clock=lambda: ARRIVAL)
        await sink.start()
        await pipeline.start()
        await pipeline.submit(records)
        await until(lambda: spool.pending("web").records == 0, "everything is delivered")
        await pipeline.stop()
        await sink.stop()
        return [(request.headers.get("content-encoding", "none"), request.body) for request in receiver.received]


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
@pytest.mark.parametrize("count", [3, 1000], ids=["not packed by the spool", "packed by the spool"])
async def test_every_compression_carries_the_records(tmp_path: Path, compression: Compression, count: int) -> None:
    [(encoding, body)] = await forward(tmp_path, compression, rows(count))
    assert encoding == compression
    plain = decompress(body, "" if encoding == "none" else encoding, 1 << 20)
    assert decode_envelope(plain).records == rows(count)


async def test_what_the_spool_has_packed_goes_on_as_it_is(tmp_path: Path) -> None:
    """With the time of its arrival, which only the spool's own body has."""
    [(_, body)] = await forward(tmp_path, "zstd", rows(1000))
    assert decode_envelope(decompress(body, "zstd", 1 << 20)).received_at == ARRIVAL
