"""The source over a real socket, through a whole Lens, and its parser with anything."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from lens_statsd_source import Statsd, StatsdSettings, parse

from lens_core import Measurement
from lens_core.testing import LensFactory, RecordingGate, check_source, make_context, until


def send(port: int, data: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, ("127.0.0.1", port))


async def test_it_starts_and_stops_as_the_contract_says(tmp_path: Path) -> None:
    await check_source(Statsd(StatsdSettings(listen="127.0.0.1:0"), make_context("statsd", tmp_path)), [])


async def test_datagrams_come_out_at_the_sink(lens: LensFactory) -> None:
    running = await lens(Statsd, config={"sources": {"statsd": {"listen": "127.0.0.1:0"}}})
    assert running.daemon.assembly is not None
    (source,) = running.daemon.assembly.sources
    assert isinstance(source, Statsd)
    send(source.port, b"queue.length:3|g|#team:vision\nnonsense\njobs:1|c|@0.5\n")
    first, second = await running.wait_for_records(2, Measurement)
    assert isinstance(first, Measurement)
    assert isinstance(second, Measurement)
    assert (first.name, first.value, first.tags) == ("queue.length", 3.0, {"team": "vision"})
    assert (second.name, second.value, second.kind) == ("jobs", 2.0, "count")
    status = await running.get_json("/status")
    assert [found["rejected"] for found in status["sources"] if found["name"] == "statsd"] == [{"malformed": 1}]


async def test_a_shut_door_is_waited_for_and_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    gate = RecordingGate()
    source = Statsd(StatsdSettings(listen="127.0.0.1:0", queue_datagrams=1), make_context("statsd", tmp_path))
    source.gate = gate
    await source.start()
    source.take(b"a:1|g")
    source.take(b"b:1|g")
    task = asyncio.ensure_future(source.run())
    await until(lambda: gate.received == 2, "both are accounted for")
    assert ([type(record) for record in gate.records], gate.rejected) == ([Measurement], {"too_many": 1})
    task.cancel()
    await source.stop()


@pytest.mark.parametrize(
    "line", [b"", b":", b"a", b"a:1", b"a:x|g", b"a:1|zz", b"a:nan|g", b":1|g", b"a:1|c|@0", b"a:1|c|@x", b"\xff\xfe"]
)
def test_what_is_no_metric_is_none(line: bytes) -> None:
    assert parse(line) is None


def test_a_timer_has_its_unit() -> None:
    measured = parse(b"step:12.5|ms")
    assert measured is not None
    assert (measured.value, measured.unit) == (12.5, "milliseconds")


@pytest.mark.parametrize("listen", ["8125", "host:", ":8125", "host:99999"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(ValueError, match="listen: must be HOST:PORT"):
        StatsdSettings(listen=listen)
