"""The sink on the real path: spool, delivery, an intake in every kind of trouble."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from pathlib import Path

import pytest
from lens_plugins.sinks.datadog import Datadog, DatadogSettings

from lens_core import Measurement, Record, Secret, Sink
from lens_core.testing import SINK_CHECKS, HttpReceiver, SinkHarness, Trouble, make_context
from lens_core.testing.sinks import SinkCheck


class DatadogHarness(SinkHarness):
    troubles = ("absent", "busy", "error", "too_large", "garbage", "hang")

    def __init__(self, receiver: HttpReceiver, folder: Path) -> None:
        self._receiver = receiver
        self._folder = folder

    def make_sink(self) -> Sink:
        settings = DatadogSettings(api_key=Secret("k" * 32), url=self._receiver.url, timeout_seconds=5.0)
        sink: Sink = Datadog(settings, make_context("datadog", self._folder))
        return sink

    async def trouble(self, kind: Trouble | None) -> None:
        await self._receiver.trouble(kind)

    def record(self, number: int) -> Record:
        return Measurement(name="check.number", value=float(number), event_time=time.time())

    async def stored(self) -> Counter[int]:
        bodies = [json.loads(gzip.decompress(request.body)) for request in self._receiver.received]
        series = [series for body in bodies for series in body["series"]]
        return Counter(int(point["value"]) for one in series for point in one["points"])


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
async def test_datadog(check: SinkCheck, tmp_path: Path) -> None:
    async with HttpReceiver(status=202, answer=lambda _: b'{"errors": []}', max_body_bytes=600) as receiver:
        await check(DatadogHarness(receiver, tmp_path), tmp_path / "road")
