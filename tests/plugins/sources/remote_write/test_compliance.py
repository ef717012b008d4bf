"""The receiver cases of prometheus/compliance (remote write 2.0) as plain requests, and what senders need beside them.

On 2xx the three counts are exact; on 4xx they are at most what was sent; 5xx never.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import httpx
import pytest

from tests.plugins.sources.remote_write.conftest import Receiver
from tests.plugins.sources.remote_write.wire import V2_TYPE, Request2, labels_of, packed, request, series

NOW = 1_795_000_000_000
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
UP = {"__name__": "up", "job": "test"}
BUCKETS = {"positive_spans": [{"offset": 0, "length": 2}], "positive_deltas": [2, 1], "zero_count_int": 1}
HISTOGRAM = {"count_int": 6, "sum": 9.5, "schema": 2, "timestamp": NOW, **BUCKETS}


async def send(receiver: Receiver, body: Request2) -> httpx.Response:
    return await receiver.write(body.body(), content_type=V2_TYPE)


def written(answer: httpx.Response) -> tuple[int, int, int]:
    """Samples, histograms, exemplars."""
    names = ("samples", "histograms", "exemplars")
    counts = [int(answer.headers[f"x-prometheus-remote-write-{name}-written"]) for name in names]
    return counts[0], counts[1], counts[2]


async def taken(receiver: Receiver, body: Request2, samples: int, histograms: int = 0, exemplars: int = 0) -> Any:
    answer = await send(receiver, body)
    assert (answer.status_code, answer.content) == (204, b"")
    assert written(answer) == (samples, histograms, exemplars)
    return receiver.last()


async def refused(receiver: Receiver, body: Request2, samples: int = 0, histograms: int = 0) -> None:
    answer = await send(receiver, body)
    assert answer.status_code == 400
    assert answer.json()["message"]
    assert written(answer) == (samples, histograms, 0)


@pytest.mark.parametrize("kind", ["application/json", "image/png", "application/x-protobuf;proto=other", "x;;="])
async def test_wrong_content_type_is_415(receiver: Receiver, kind: str) -> None:
    assert (await receiver.write(packed(b""), content_type=kind)).status_code == 415


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_wrong_content_encoding_is_415(receiver: Receiver, encoding: str) -> None:
    answer = await receiver.write(packed(b""), content_encoding=encoding)
    assert answer.status_code == 415


async def test_damaged_snappy_is_400(receiver: Receiver) -> None:
    body = Request2()
    body.add(UP, (1.0, NOW))
    answer = await receiver.write(b"\xff" + body.body()[1:], content_type=V2_TYPE)
    assert answer.status_code == 400


@pytest.mark.parametrize("value", [1.0, STALE, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {f"label_{number:03}": "x" * number for number in range(1, 60)},
        {"text": "a\nb"},
        {"dotted.name": "x"},
        {"a name with spaces": "x"},
    ],
)
async def test_single_metric(receiver: Receiver, value: float, more: dict[str, str]) -> None:
    body = Request2()
    body.add({**UP, **more}, (value, NOW))
    (one,) = (await taken(receiver, body, 1)).timeseries
    assert labels_of(one) == {**UP, **more}
    assert struct.pack("<d", one.samples[0].value) == struct.pack("<d", value)


@pytest.mark.parametrize("labels", [[], [("job", "x")], [("__name__", ""), ("job", "x")]])
async def test_series_without_a_name_is_refused(receiver: Receiver, labels: list[tuple[str, str]]) -> None:
    body = Request2()
    body.add(labels, (1.0, NOW))
    await refused(receiver, body)
    mixed = Request2()
    for number in range(3):
        mixed.add({**UP, "n": str(number)}, (1.0, NOW))
    mixed.add(labels, (1.0, NOW))
    await refused(receiver, mixed, samples=3)


async def test_four_series_and_four_without_a_name(receiver: Receiver) -> None:
    good, bad = Request2(), Request2()
    for number in range(4):
        good.add({"__name__": "up", "n": str(number)}, (1.0, NOW))
        bad.add({"n": str(number)}, (1.0, NOW))
    await taken(receiver, good, 4)
    await refused(receiver, bad)


@pytest.mark.parametrize(
    "labels",
    [
        [("trace_id", "abc")],
        [("span_id", "abc")],
        [],
        [(f"l{number}", "x") for number in range(20)],
        [("special", '"\\\n\t')],
        [("unicode", "näïve ✓")],
    ],
)
async def test_exemplars(receiver: Receiver, labels: list[tuple[str, str]]) -> None:
    body = Request2()
    one = body.add(UP, (1.0, NOW))
    one.exemplars.add(labels_refs=body.refs(labels), value=2.0, timestamp=NOW)
    (passed,) = (await taken(receiver, body, 1, 0, 1)).timeseries
    (exemplar,) = passed.exemplars
    assert [(label.name, label.value) for label in exemplar.labels] == labels
    assert (exemplar.value, exemplar.timestamp) == (2.0, NOW)


async def test_exemplar_or_metadata_of_a_series_without_a_name(receiver: Receiver) -> None:
    body = Request2()
    body.add([("job", "x")]).exemplars.add(labels_refs=[], value=2.0, timestamp=NOW)
    await refused(receiver, body)
    body = Request2()
    body.add([("__name__", ""), ("job", "x")], (1.0, NOW)).metadata.type = 1
    await refused(receiver, body)


@pytest.mark.parametrize(
    "histogram",
    [
        HISTOGRAM,
        {**HISTOGRAM, "schema": -53, "zero_count_int": 0, "count_int": 5, "custom_values": [1.0, 2.0]},
        {**HISTOGRAM, "count_int": 4, "positive_spans": [], "positive_deltas": [],
         "negative_spans": [{"offset": 1, "length": 1}], "negative_deltas": [3]},
        {"count_int": 7, "zero_count_int": 7, "sum": 0.0, "timestamp": NOW},
        {**HISTOGRAM, "count_int": 9, "sum": math.nan},
        {"sum": STALE, "timestamp": NOW},
        {"count_float": 6.0, "zero_count_float": 1.0, "sum": 1.0, "positive_spans": [{"offset": 0, "length": 2}],
         "positive_counts": [2.0, 3.0], "timestamp": NOW},
        {"count_int": 0, "sum": 0.0, "timestamp": NOW, "start_timestamp": NOW - 1},
    ],
)  # fmt: skip
async def test_histograms(receiver: Receiver, histogram: dict[str, Any]) -> None:
    body = Request2()
    one = body.add(UP, histograms=[histogram])
    (passed,) = (await taken(receiver, body, 0, 1)).timeseries
    assert passed.histograms[0].SerializeToString() == one.histograms[0].SerializeToString()


@pytest.mark.parametrize(
    "change",
    [
        {"count_int": 5},
        {"count_int": 99},
        {"schema": 9},
        {"schema": -9},
        {"positive_deltas": [2]},
        {"positive_deltas": [2, -3]},
        {"positive_spans": [{"offset": 0, "length": 1}, {"offset": -1, "length": 1}]},
        {"schema": -53, "custom_values": [2.0, 1.0], "zero_count_int": 0, "count_int": 5},
    ],
)
async def test_histogram_that_contradicts_itself_is_refused(receiver: Receiver, change: dict[str, Any]) -> None:
    body = Request2()
    body.add(UP, histograms=[{**HISTOGRAM, **change}])
    await refused(receiver, body)


@pytest.mark.parametrize("kind", range(8))
@pytest.mark.parametrize(("text", "unit"), [("What it is.", "seconds"), ("", ""), ('a "quote"\nand a line', "")])
async def test_metadata(receiver: Receiver, kind: int, text: str, unit: str) -> None:
    body = Request2()
    one = body.add({"__name__": "work_count", "job": "x"}, (1.0, NOW))
    one.metadata.type, one.metadata.help_ref, one.metadata.unit_ref = kind, body.symbol(text), body.symbol(unit)
    metadata = list((await taken(receiver, body, 1)).metadata)
    if not (kind or text or unit):
        assert metadata == []
        return
    family = "work" if kind in (3, 4, 5) else "work_count"
    found = metadata[0]
    assert (found.metric_family_name, found.type, found.help, found.unit) == (family, kind, text, unit)


async def test_created_timestamps_of_old_drafts(receiver: Receiver) -> None:
    body = Request2()
    body.add(UP, (1.0, NOW), created_timestamp=NOW - 5)
    body.add({**UP, "n": "2"}, histograms=[HISTOGRAM], created_timestamp=NOW - 5)
    await taken(receiver, body, 1, 1)


async def test_mixtures_have_exact_counts(receiver: Receiver) -> None:
    body = Request2()
    for number in range(50):
        one = body.add({**UP, "n": str(number)}, (1.0, NOW), (2.0, NOW + 15_000))
        one.exemplars.add(labels_refs=body.refs([("trace_id", str(number))]), value=1.0, timestamp=NOW)
        other = body.add({**UP, "h": str(number)}, histograms=[HISTOGRAM])
        other.exemplars.add(labels_refs=[], value=1.0, timestamp=NOW)
    body.add({**UP, "only": "an exemplar"}).exemplars.add(labels_refs=[], value=1.0, timestamp=NOW)
    body.add({**UP, "only": "metadata"}).metadata.type = 1
    await taken(receiver, body, 100, 50, 101)


async def test_body_of_the_other_version_is_never_taken_for_an_empty_one(receiver: Receiver) -> None:
    first = packed(request(series(UP, (1.0, NOW))))
    second = Request2()
    second.add(UP, (1.0, NOW))
    assert (await receiver.write(first, content_type=V2_TYPE)).status_code == 400
    assert (await receiver.write(second.body())).status_code == 400
    answer = await receiver.write(first)
    assert answer.status_code == 204
    assert not [name for name in answer.headers if name.endswith("-written")]
    assert (await receiver.write(b"\xff" + first[1:])).status_code == 400


@pytest.mark.parametrize("refs", [[1], [1, 99], [0, 1]])
async def test_references_that_lead_nowhere(receiver: Receiver, refs: list[int]) -> None:
    body = Request2()
    body.symbol("__name__")
    body.message.timeseries.add(labels_refs=refs, samples=[{"value": 1.0, "timestamp": NOW}])
    await refused(receiver, body)


async def test_first_symbol_must_be_empty(receiver: Receiver) -> None:
    body = Request2()
    body.add(UP, (1.0, NOW))
    body.message.symbols[0] = "x"
    await refused(receiver, body)


async def test_headers_may_be_missing(receiver: Receiver) -> None:
    body = packed(request(series(UP, (1.0, NOW))))
    for headers in ({"content_encoding": ""}, {"content_type": ""}, {"content_encoding": "", "content_type": ""}):
        assert (await receiver.write(body, **headers)).status_code == 204
    assert len(receiver.gate.records) == 3


@pytest.mark.parametrize("path", ["/prometheus", "/api/v1/prometheus", "/v1/prometheus", "/prometheus/api/v1/write"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_paths_of_the_seeds(receiver: Receiver, path: str, method: str) -> None:
    body = packed(request(series(UP, (1.0, NOW))))
    async with receiver.client() as client:
        assert (await client.request(method, path, content=body)).status_code == 204
        assert (await client.get(path)).status_code == 400


async def test_empty_and_huge_bodies(receiver: Receiver) -> None:
    assert (await receiver.write(b"")).status_code == 400
    assert (await receiver.write(b"\0")).status_code == 204
    assert (await receiver.write(b"\xff\xff\xff\xff\x0f" + b"x" * 50)).status_code == 400
    assert (await receiver.write(packed(bytes(33 << 20)))).status_code == 400
    assert receiver.gate.records == []


async def test_full_spool_is_503_with_retry_after(receiver: Receiver) -> None:
    receiver.gate.closed = True
    body = Request2()
    body.add(UP, (1.0, NOW))
    answer = await send(receiver, body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
    assert written(answer) == (0, 0, 0)


async def test_zstd_as_new_vmagents_send_it(receiver: Receiver) -> None:
    import zstandard

    body = zstandard.compress(request(series(UP, (1.0, NOW))))
    assert (await receiver.write(body, content_encoding="zstd")).status_code == 204
    assert labels_of(receiver.last().timeseries[0]) == UP


async def test_start_timestamps_survive_in_samples(receiver: Receiver) -> None:
    body = Request2()
    body.add(UP, (1.0, NOW)).samples[0].start_timestamp = NOW - 7
    (one,) = (await taken(receiver, body, 1)).timeseries
    assert one.samples[0].start_timestamp == NOW - 7
