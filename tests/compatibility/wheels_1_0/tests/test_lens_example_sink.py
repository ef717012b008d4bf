"""The sink against a server that keeps what it gets, and through the contract checks."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
from lens_example_sink import Influx, InfluxSettings, to_line

from lens_core import Origin, Secret, Sink, StepMetrics
from lens_core.testing import SINK_CHECKS, HttpReceiver, SinkCheck, SinkHarness, Trouble, make_context


class Harness(SinkHarness):
    troubles = ("absent", "busy", "error", "too_large", "garbage", "hang")

    def __init__(self, receiver: HttpReceiver, folder: Path) -> None:
        self._receiver = receiver
        self._folder = folder

    def make_sink(self) -> Sink:
        settings = InfluxSettings(url=self._receiver.url, bucket="b", token=Secret("s3cret"), timeout_seconds=5.0)
        return Influx(settings, make_context("influx", self._folder))

    async def trouble(self, kind: Trouble | None) -> None:
        await self._receiver.trouble(kind)

    async def stored(self) -> Counter[int]:
        lines = b"\n".join(request.body for request in self._receiver.received).decode().splitlines()
        return Counter(int(line.split(" step=")[1].split("i,")[0]) for line in lines)


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
async def test_the_sink_keeps_the_contract(check: SinkCheck, tmp_path: Path) -> None:
    async with HttpReceiver(status=204, max_body_bytes=2000) as receiver:
        await check(Harness(receiver, tmp_path), tmp_path / "road")


def test_a_row_is_one_line() -> None:
    row = StepMetrics(
        origin=Origin(workload_uid="job 1", rank=0),
        data_source="wandb",
        run_id="a,b",
        row_step=7,
        event_time=1.5,
        values={"train loss": 0.5, "bad": math.nan},
    )
    assert to_line(row, "training") == (
        r"training,workload=job\ 1,run=a\,b,source=wandb,rank=0 step=7i,train\ loss=0.5 1500000"
    )
    assert to_line(StepMetrics(data_source="wandb", row_step=1, values={"bad": math.inf}), "training") == ""


async def test_the_token_is_sent_and_checked(tmp_path: Path) -> None:
    async with HttpReceiver(status=204) as receiver:
        sink = Harness(receiver, tmp_path).make_sink()
        await sink.check()
        await sink.stop()
        (request,) = receiver.received
        assert request.target == "/ping"
        assert request.headers["authorization"] == "Token s3cret"
