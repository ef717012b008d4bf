"""The dlrover sink through the contract checks of sinks; a real master has its test beside the collectors."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from lens_plugins.dlrover import load, report_from_wire
from lens_plugins.dlrover.messages import decode_http, encode_http_response
from lens_plugins.sinks.dlrover import Dlrover, DlroverSettings

from lens_core import Diagnosis, Record, Sink
from lens_core.testing.hosts import make_context
from lens_core.testing.receiver import HttpReceiver, Received, Trouble
from lens_core.testing.sinks import SINK_CHECKS, SinkCheck, SinkHarness


class DlroverHarness(SinkHarness):
    # A master's 500 says that the report itself is wrong; `error` is no trouble that goes away.
    troubles = ("absent", "busy", "garbage", "hang")

    def __init__(self, receiver: HttpReceiver, folder: Path) -> None:
        self._receiver = receiver
        self._folder = folder

    def make_sink(self) -> Sink:
        address = self._receiver.url.removeprefix("http://")
        settings = DlroverSettings(address=address, service="http", deadline_seconds=0.5)
        sink: Sink = Dlrover(settings, make_context("dlrover", self._folder))
        return sink

    async def trouble(self, kind: Trouble | None) -> None:
        await self._receiver.trouble(kind)

    async def stored(self) -> Counter[int]:
        reports = [report_from_wire(load(decode_http(request.body).data)) for request in self._receiver.received]
        return Counter(int(json.loads(report.data_content)["number"]) for report in reports)

    def record(self, number: int) -> Record:
        content = json.dumps({"number": number, "text": "größe \U0001f600"})
        return Diagnosis(
            data_type="STACK_TRACE", data_content=content, node_id=1, node_type="worker", node_rank=1, timestamp=1.8e9
        )


def answer_of_a_master(request: Received) -> bytes:
    return bytes(encode_http_response(True))


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
async def test_the_contract_of_sinks(check: SinkCheck, tmp_path: Path) -> None:
    async with HttpReceiver(answer=answer_of_a_master, max_body_bytes=1 << 20) as receiver:
        await check(DlroverHarness(receiver, tmp_path), tmp_path / "road")
