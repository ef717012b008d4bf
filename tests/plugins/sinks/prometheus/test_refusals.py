from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam

from lens_core import Delivered, Origin, Rejected, SeriesBatch, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.sending.sender import SinkSlot
from lens_core.delivery.spool.spool import Spool
from lens_core.pipeline.pipeline import Pipeline
from tests.plugins.sinks.prometheus.conftest import NOW, Bench, series_batch, until
from tests.plugins.sinks.prometheus.store import Store
from tests.plugins.sources.remote_write.wire import Histogram, WriteRequest, labels_of, packed, request, series


def names_of(message: Any) -> list[str]:
    return [labels_of(one)["__name__"] for one in message.timeseries]


def refusing(*names: str) -> Callable[[Any, int], tuple[int, dict[str, str]]]:
    return lambda message, number: (400 if set(names) & set(names_of(message)) else 204, {})


def read(part: Any) -> Any:
    return WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(part.body)))


async def test_refused_series_of_a_request_are_a_dead_letter_and_nothing_else_of_it(store: Store) -> None:
    store.answer = refusing("bad", "worse")
    bench = Bench(store.url)
    histogram = Histogram(count_int=1, sum=1.0, zero_count_int=1, timestamp=NOW)
    body = request(
        series({"__name__": "a"}, (1.0, NOW)),
        series({"__name__": "bad"}, (1.0, NOW), (2.0, NOW + 1)),
        series({"__name__": "b"}, (1.0, NOW)),
        series({"__name__": "worse"}, histograms=[histogram]),
    )
    answer = await bench.send(series_batch("x"), SeriesBatch(body=packed(body), compression="snappy", series=4))
    assert isinstance(answer, Rejected)
    assert answer.items == {1: "2 of 4 series: HTTP 400: because"}
    (part,) = answer.parts.values()
    assert isinstance(part, SeriesBatch)
    assert (part.series, part.samples, part.histograms, part.exemplars) == (2, 2, 1, 0)
    assert [one.SerializeToString() for one in read(part).timeseries] == [
        one.SerializeToString() for one in WriteRequest.FromString(body).timeseries[1::2]
    ]
    await bench.sink.stop()


async def test_shards_put_what_they_lost_together(store: Store) -> None:
    names = [f"n{number}" for number in range(12)]
    store.answer = refusing(*names[:6])
    bench = Bench(store.url, shards=3)
    answer = await bench.send(series_batch(*names))
    assert isinstance(answer, Rejected)
    assert answer.items == {0: "6 of 12 series: HTTP 400: because"}
    assert sorted(names_of(read(answer.parts[0]))) == names[:6]
    await bench.sink.stop()


async def test_refused_series_of_training_rows_stand_in_for_the_first_row(store: Store) -> None:
    store.answer = refusing("lens_training_loss")
    bench = Bench(store.url)
    row = StepMetrics(origin=Origin(workload_uid="w"), data_source="log", row_step=1, values={"loss": 1.0})
    answer = await bench.send(series_batch("x"), row, row)
    assert isinstance(answer, Rejected)
    assert list(answer.items) == list(answer.parts) == [1]
    assert names_of(read(answer.parts[1])) == ["lens_training_loss"]
    await bench.sink.stop()


async def test_refused_series_are_sent_again_by_a_replay(store: Store, tmp_path: Path) -> None:
    store.answer = refusing("bad")
    bench = Bench(store.url)
    pipeline = Pipeline("p", Spool(tmp_path / "p"), [SinkSlot(name="tsdb", sink=bench.sink)], metrics=SelfMetrics())
    await pipeline.start()
    await pipeline.submit([series_batch("a", "bad", "b")])
    await until(lambda: pipeline.dead_letters.count_letters("tsdb") == 1)
    (letter,) = await pipeline.dead_letters.entries("tsdb")
    assert (letter.reason, letter.record["series"]) == ("1 of 3 series: HTTP 400: because", 1)
    store.answer = refusing()
    assert await pipeline.dead_letters.replay_letters("tsdb") == 1
    await until(lambda: names_of(store.taken[-1]) == ["bad"])
    await until(lambda: pipeline.pipeline_status().sinks[0].pending_records == 0)
    status = pipeline.pipeline_status().sinks[0]
    assert (status.ledger.rejected, status.ledger.delivered, pipeline.dead_letters.count_letters()) == (
        {"refused": 1},
        1,
        0,
    )
    assert sorted(name for message in store.taken for name in names_of(message)) == ["a", "b", "bad"]
    await pipeline.stop()
    await bench.sink.stop()


async def test_nothing_refused_is_delivered(store: Store) -> None:
    bench = Bench(store.url)
    assert await bench.send(series_batch("a")) == Delivered()
    await bench.sink.stop()
