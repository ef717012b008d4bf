from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.http import Http, HttpSettings, classify

from lens_core import (
    Answer,
    Batch,
    BatchLimits,
    Delivered,
    LensError,
    Poisoned,
    Position,
    Rejected,
    Retry,
    Secret,
    StepMetrics,
)
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
def test_what_a_lens_will_never_take_is_poison(status: int) -> None:
    body = b'{"code": "RequestParameterInvalid", "message": "no"}'
    assert isinstance(classify(status, {}, body, 1), Poisoned)


@given(status=st.integers(300, 599), body=st.sampled_from([b"<html>", b'{"message": "no"}', b"no"]) | st.binary())
def test_what_is_no_lens_refuses_nothing(status: int, body: bytes) -> None:
    assert isinstance(classify(status, {}, body, 1), Retry)


async def test_a_proxys_limit_divides_a_batch_and_a_port_for_tls_loses_nothing(tmp_path: Path) -> None:
    async with HttpReceiver(answer=lambda received: b'{"success": true}') as receiver:
        sink = Http(HttpSettings(url=receiver.url, compression="none"), make_context("web", tmp_path))
        await sink.start()
        values: dict[str, float | str] = {f"metric{number}": 0.5 for number in range(1000)}
        large = msgspec.structs.replace(rows(1)[0], values=values)

        async def send(*records: StepMetrics) -> Answer:
            place = Position(0, 0)
            batch = Batch(records=records, start=place, end=place, spool_id="s", pipeline="p", sink="web")
            answer: Answer = await sink.send(batch)
            return answer

        receiver.will(413, 413)
        assert isinstance(await send(large), Retry), "nothing was taken yet: it may be no Lens at all"
        assert isinstance(await send(*rows(3), large), Poisoned)
        assert await send(*rows(3)) == Delivered()
        receiver.will(413, 413, 400)
        assert isinstance(await send(large), Poisoned)
        assert isinstance(await send(*rows(1)), Retry), "so large a one was taken before"
        assert isinstance(await send(*rows(3)), Retry)
        assert await send(*rows(3)) == Delivered()
        await sink.stop()


def test_rejections_out_of_range_or_of_another_type_are_ignored() -> None:
    body = b'{"success": true, "rejected": [{"index": 1, "reason": "x"}, {"index": 9}, {"index": "0"}]}'
    assert classify(200, {}, body, 2) == Rejected({1: "x"})


def test_the_token_is_not_in_the_settings_repr() -> None:
    assert "hunter2" not in repr(HttpSettings(url="http://x", token=Secret("hunter2")))


def rows(count: int) -> list[StepMetrics]:
    return [StepMetrics(data_source="wandb", row_step=step, values={"loss": step * 0.37}) for step in range(count)]


async def forward(folder: Path, compression: Compression, records: list[StepMetrics]) -> list[tuple[str, bytes]]:
    """Return the encoding and the body of each request for records that go through a pipeline."""
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


async def test_the_check_is_not_content_with_any_page(tmp_path: Path) -> None:
    async with HttpReceiver(answer=lambda received: b"<html>sign in</html>") as receiver:
        sink = Http(HttpSettings(url=receiver.url), make_context("web", tmp_path))
        with pytest.raises(LensError, match="no Lens"):
            await sink.check()
        receiver.answers(b'{"success": true}')
        await sink.check()


async def test_what_the_spool_has_packed_goes_on_as_it_is(tmp_path: Path) -> None:
    """With the time of its arrival, which only the spool's own body has."""
    [(_, body)] = await forward(tmp_path, "zstd", rows(1000))
    assert decode_envelope(decompress(body, "zstd", 1 << 20)).received_at == ARRIVAL
