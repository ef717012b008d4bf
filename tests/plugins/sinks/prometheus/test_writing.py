from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sinks.prometheus.delivering import MOST_REQUESTS
from lens_plugins.sinks.prometheus.messages import Outgoing, divide, split_request, to_version2
from lens_plugins.sinks.prometheus.posting import address_of

from lens_core import ConfigurationError, Delivered, Rejected, Retry, Secret, SeriesBatch
from tests.generated import examples
from tests.plugins.sinks.prometheus.conftest import NOW, Bench, series_batch
from tests.plugins.sinks.prometheus.store import Store
from tests.plugins.sources.remote_write.wire import Request, WriteRequest, labels_of, request, series


def names_of(message: Any) -> list[str]:
    return [labels_of(one)["__name__"] for one in message.timeseries]


async def test_requests_are_never_merged_and_keep_their_bytes(store: Store) -> None:
    bench = Bench(store.url, token=Secret("s3cret"), headers={"X-Scope-OrgID": Secret("me")})
    first, second = series_batch("a", "b"), series_batch("a", stamp=NOW + 1)
    assert await bench.send(first, second) == Delivered()
    assert [body for _, body in store.requests] == [first.body, second.body]
    headers = store.requests[0][0]
    wanted = {
        "content-type": "application/x-protobuf",
        "content-encoding": "snappy",
        "x-prometheus-remote-write-version": "0.1.0",
        "user-agent": "lens-agent/0.1.0",
        "authorization": "Bearer s3cret",
        "x-scope-orgid": "me",
    }
    assert headers.items() >= wanted.items()
    assert store.connections == 1
    await bench.sink.stop()


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_what_helps_is_tried_again_and_nothing_is_sent_twice(store: Store, status: int) -> None:
    store.answer = lambda message, number: (status, {"Retry-After": "7"}) if number == 2 else (204, {})
    bench = Bench(store.url)
    batch = bench.batch([series_batch("a"), series_batch("b"), series_batch("c")])
    answer = await bench.sink.send(batch)
    assert answer == Retry(f"HTTP {status}: because", 7.0)
    assert await bench.sink.send(msgspec.structs.replace(batch, attempt=2)) == Delivered()
    assert [headers.get("retry-attempt") for headers, _ in store.requests] == [None, None, "1", "1"]
    assert [names_of(message) for message in store.taken] == [["a"], ["b"], ["c"]]
    await bench.sink.stop()


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405, 407, 410, 415, 418, 451])
async def test_a_wrong_key_or_address_refuses_no_series(store: Store, status: int) -> None:
    store.answer = lambda message, number: (status, {})
    bench = Bench(store.url)
    answer = await bench.send(series_batch("a"), series_batch("b"))
    assert isinstance(answer, Retry)
    assert answer.reason.startswith(f"HTTP {status}: because")
    text = bench.metrics.exposition().decode()
    assert f'reason="HTTP {status}"' not in text
    store.answer = lambda message, number: (204, {})
    assert await bench.send(series_batch("a"), series_batch("b")) == Delivered()
    await bench.sink.stop()


@pytest.mark.parametrize("status", [400, 409, 413, 422])
async def test_what_does_not_help_is_not_tried_again(store: Store, status: int) -> None:
    store.answer = lambda message, number: (status, {})
    bench = Bench(store.url)
    answer = await bench.send(series_batch("a"), series_batch("b"))
    assert answer == Rejected({0: f"HTTP {status}: because", 1: f"HTTP {status}: because"})
    assert len(store.requests) == 2
    await bench.sink.stop()


async def test_one_bad_sample_loses_no_other(store: Store) -> None:
    store.answer = lambda message, number: (400 if "bad" in names_of(message) else 204, {})
    bench = Bench(store.url)
    names = [f"n{number}" for number in range(100)]
    answer = await bench.send(series_batch(*names[:33], "bad", *names[33:]))
    assert isinstance(answer, Rejected)
    assert answer.items == {0: "1 of 101 series: HTTP 400: because"}
    assert sorted(name for message in store.taken for name in names_of(message)) == sorted(names)
    text = bench.metrics.exposition().decode()
    assert 'lens_prometheus_refused_series_total{component="tsdb",reason="HTTP 400"} 1.0' in text
    assert len(store.requests) < 20
    await bench.sink.stop()


async def test_store_that_refuses_everything_is_not_asked_for_ever(store: Store) -> None:
    store.answer = lambda message, number: (400, {})
    bench = Bench(store.url)
    answer = await bench.send(series_batch(*(f"n{number}" for number in range(2000))))
    assert answer == Rejected({0: "HTTP 400: because"})
    assert len(store.requests) <= MOST_REQUESTS + 20
    await bench.sink.stop()


async def test_nobody_there_is_tried_again() -> None:
    bench = Bench("http://127.0.0.1:1/write", timeout_seconds=2)
    answer = await bench.send(series_batch("a"))
    assert isinstance(answer, Retry)
    assert "refused" in answer.reason.lower()


async def test_connection_that_was_closed_meanwhile_costs_nothing(store: Store) -> None:
    bench = Bench(store.url)
    await bench.send(series_batch("a"))
    store.drop_connections()
    await asyncio.sleep(0)
    assert await bench.send(series_batch("b")) == Delivered()
    store.answer = lambda message, number: (204, {"Connection": "close"})
    assert await bench.send(series_batch("c")) == Delivered()
    assert await bench.send(series_batch("d")) == Delivered()
    assert [names_of(message) for message in store.taken] == [["a"], ["b"], ["c"], ["d"]]
    await bench.sink.stop()


async def test_answer_that_never_comes_and_answer_that_is_none(store: Store) -> None:
    store.delay_seconds = 5.0
    bench = Bench(store.url, timeout_seconds=0.05)
    assert isinstance(await bench.send(series_batch("a")), Retry)
    store.delay_seconds = 0.0
    store.answer = lambda message, number: (0, {})
    assert isinstance(await bench.send(series_batch("a")), Retry)
    await bench.sink.stop()


async def test_shards_work_at_one_time_and_keep_the_order_of_each_series(store: Store) -> None:
    store.delay_seconds = 0.02
    bench = Bench(store.url, shards=4)
    names = [f"n{number}" for number in range(40)]
    batches = [series_batch(*names, stamp=NOW + step) for step in range(5)]
    failing = {3, 6}
    store.answer = lambda message, number: (503 if number in failing else 204, {})
    batch = bench.batch(batches)
    while isinstance(await bench.sink.send(batch), Retry):
        pass
    assert store.most_at_once == 4
    seen: dict[str, list[int]] = {}
    for message in store.taken:
        for one in message.timeseries:
            seen.setdefault(labels_of(one)["__name__"], []).append(one.samples[0].timestamp)
    assert seen == {name: [NOW + step for step in range(5)] for name in names}
    await bench.sink.stop()


async def test_damaged_record_is_rejected_alone(store: Store) -> None:
    bench = Bench(store.url)
    plain = SeriesBatch(body=request(series({"__name__": "b"}, (1.0, NOW))), series=1)
    other = SeriesBatch(body=b"", compression="lzma")
    answer = await bench.send(SeriesBatch(body=b"\xff\xff"), series_batch("a"), other, plain)
    assert isinstance(answer, Rejected)
    assert list(answer.items) == [0, 2]
    assert [names_of(message) for message in store.taken] == [["a"], ["b"]]
    await bench.sink.stop()


async def test_check_says_why_not(store: Store) -> None:
    await Bench(store.url).sink.check()
    store.answer = lambda message, number: (401, {})
    with pytest.raises(ConnectionError, match="401"):
        await Bench(store.url).sink.check()


async def test_stores_behind_tls(tmp_path: Path) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "ca.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "ca.pem", tmp_path / "key.pem")
    store = Store()
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/write"
    trusting = Bench(url, ca_file=str(tmp_path / "ca.pem"), username="me", password=Secret("s3cret"))
    assert await trusting.send(series_batch("a")) == Delivered()
    assert store.requests[0][0]["authorization"] == "Basic bWU6czNjcmV0"
    answer = await Bench(url).send(series_batch("a"))
    assert isinstance(answer, Retry)
    assert "certificate" in answer.reason
    await trusting.sink.stop()
    server.close()
    (tmp_path / "broken.pem").write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"broken\.pem cannot be used"):
        Bench(url, ca_file=str(tmp_path / "broken.pem"))


async def test_version_2_falls_back_where_it_is_not_understood(store: Store) -> None:
    bench = Bench(store.url, protocol="2.0")
    store.answer = lambda message, number: (415 if number == 1 else 204, {})
    assert await bench.send(series_batch("a")) == Delivered()
    versions = [headers["x-prometheus-remote-write-version"] for headers, _ in store.requests]
    assert versions == ["2.0.0", "0.1.0"]
    await bench.sink.stop()


def test_version_2_holds_the_same() -> None:
    histogram = {"count_int": 2, "sum": 1.0, "timestamp": NOW, "zero_count_int": 2}
    exemplar = {"labels": [{"name": "trace_id", "value": "x"}], "value": 1.0, "timestamp": NOW}
    body = request(
        series({"__name__": "work_total", "job": "x"}, (1.0, NOW), (2.0, NOW + 1), exemplars=[exemplar]),
        series({"__name__": "wait_seconds_bucket", "job": "x"}, histograms=[histogram]),
        metadata=[
            {"type": 1, "metric_family_name": "work_total", "help": "Work.", "unit": "jobs"},
            {"type": 3, "metric_family_name": "wait_seconds"},
        ],
    )
    message = Request.FromString(to_version2(split_request(body)))
    symbols = list(message.symbols)
    assert symbols[0] == ""
    assert len(set(symbols)) == len(symbols)
    work, wait = message.timeseries
    assert [symbols[ref] for ref in work.labels_refs] == ["__name__", "work_total", "job", "x"]
    assert [(sample.value, sample.timestamp) for sample in work.samples] == [(1.0, NOW), (2.0, NOW + 1)]
    assert [symbols[ref] for ref in work.exemplars[0].labels_refs] == ["trace_id", "x"]
    assert (work.metadata.type, symbols[work.metadata.help_ref], symbols[work.metadata.unit_ref]) == (
        1,
        "Work.",
        "jobs",
    )
    assert (wait.histograms[0].count_int, wait.metadata.type) == (2, 3)


@settings(max_examples=examples(50))
@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=3), max_size=20), st.integers(1, 5))
def test_dividing_loses_nothing_and_sends_a_series_to_one_shard(names: list[str], shards: int) -> None:
    whole = split_request(request(*(series({"__name__": name}, (1.0, stamp)) for stamp, name in enumerate(names))))
    parts = divide(whole, shards)
    assert sorted(one for part in parts for one in part.series) == sorted(whole.series)
    homes: dict[str, set[int]] = {}
    for number, part in enumerate(parts):
        for name in names_of(WriteRequest.FromString(part.body())):
            homes.setdefault(name, set()).add(number)
    assert all(len(numbers) == 1 for numbers in homes.values())


def test_halves_keep_order_and_metadata() -> None:
    first, second = Outgoing([b"a", b"b", b"c"], [b"m"]).halves()
    assert (list(first.series), list(first.metadata)) == ([b"a"], [b"m"])
    assert (list(second.series), list(second.metadata)) == ([b"b", b"c"], [])


def test_addresses() -> None:
    assert address_of("https://h/x?y=1") == ("h", 443, True, "/x?y=1", "h")
    assert address_of("http://u:p@[::1]:9") == ("::1", 9, False, "/", "[::1]:9")
    with pytest.raises(ValueError, match="no host"):
        address_of("http://")
