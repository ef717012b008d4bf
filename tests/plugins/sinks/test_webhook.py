"""Messages to people, through the contract checks of sinks and as chats get them."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from lens_plugins.sinks.webhook import Webhook, WebhookSettings

from lens_core import Batch, Delivered, Event, Origin, Pod, Position, Record, Rejected, Retry, Secret, Sink
from lens_core import WorkloadReference as Workload
from lens_core.testing.hosts import make_context
from lens_core.testing.receiver import HttpReceiver, Trouble
from lens_core.testing.sinks import SINK_CHECKS, SinkCheck, SinkHarness


def make_sink(receiver: HttpReceiver, folder: Path, **settings: Any) -> Webhook:
    url = Secret(f"{receiver.url}/services/T0/hunter2")
    return Webhook(WebhookSettings(url=url, **settings), make_context("webhook", folder))


class WebhookHarness(SinkHarness):
    troubles = ("absent", "busy", "error", "hang")

    def __init__(self, receiver: HttpReceiver, folder: Path) -> None:
        self._receiver = receiver
        self._folder = folder

    def make_sink(self) -> Sink:
        sink: Sink = make_sink(self._receiver, self._folder, format="json", timeout_seconds=0.5)
        return sink

    async def trouble(self, kind: Trouble | None) -> None:
        await self._receiver.trouble(kind)

    async def stored(self) -> Counter[int]:
        messages = [json.loads(request.body) for request in self._receiver.received]
        return Counter(int(message["workload_uid"].removeprefix("job-")) for message in messages)

    def record(self, number: int) -> Record:
        origin = Origin(workload_uid=f"job-{number}", pod_name="größe \U0001f600", rank=0)
        return Event(origin=origin, type="training_failed", event_time=1.7e9, details={"reason": "NaN \x00"})


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
async def test_the_contract_of_sinks(check: SinkCheck, tmp_path: Path) -> None:
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        await check(WebhookHarness(receiver, tmp_path), tmp_path / "road")


def batch(*records: Record) -> Batch:
    return Batch(
        records=records, start=Position(0, 0), end=Position(1, 0), spool_id="s", pipeline="default", sink="webhook"
    )


async def send(sink: Webhook, *records: Record) -> Any:
    await sink.start()
    try:
        return await sink.send(batch(*records))
    finally:
        await sink.stop()


def failed(rank: int, **changes: Any) -> Event:
    origin = Origin(pod_uid=f"u{rank}", pod_name=f"llama-{rank}", node=f"gpu-{rank // 8}", rank=rank)
    fields: dict[str, Any] = {"type": "out_of_memory", "iteration": 70, "event_time": time.time()}
    return Event(**{"origin": origin, **fields, "details": {"reason": "CUDA <!channel> & more"}, **changes})


async def test_a_receiver_that_does_not_answer_is_given_more_time_with_each_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try is a message: one whose answer takes 25 s would come every 10 s for ever."""
    async with HttpReceiver(max_body_bytes=1 << 20) as receiver:
        sink = make_sink(receiver, tmp_path, timeout_seconds=0.02)
        # On a busy machine a connection alone takes longer.
        monkeypatch.setattr(sink, "_make_timeout", lambda: httpx.Timeout(240.0, read=sink._answer_seconds))
        await sink.start()
        await receiver.trouble("hang")
        reasons = [await sink.send(batch(failed(0))) for _ in range(4)]
        await receiver.trouble(None)
        sink._answer_seconds = 20.0
        assert isinstance(await sink.send(batch(failed(0))), Delivered)
        await sink.stop()
    assert reasons == [
        Retry(f"the receiver did not answer within {seconds} s", timed_out=True)
        for seconds in ("0.02", "0.04", "0.08", "0.16")
    ]
    assert sink._answer_seconds not in (0.16, 20.0)


async def test_a_finding_of_an_analyzer_is_told_with_its_rule(tmp_path: Path) -> None:
    rule = "the median difference of replayed losses is over 3 standard errors and over 0.5 %"
    finding = Event(
        origin=Origin(workload_uid="llama"), type="restore_differs", event_time=time.time(), details={"rule": rule}
    )
    async with HttpReceiver() as receiver:
        await send(make_sink(receiver, tmp_path), finding)
        [message] = [json.loads(request.body) for request in receiver.received]
    assert message["text"].startswith("llama: restore differs")
    assert rule in message["text"]


async def test_what_all_ranks_of_a_job_say_is_one_message(tmp_path: Path) -> None:
    async with HttpReceiver() as receiver:
        sink = make_sink(receiver, tmp_path, page_url="http://lens:8080/")
        pods = [
            Pod(uid=f"u{rank}", name=f"llama-{rank}", workloads=[Workload(uid="job/1", name="llama")])
            for rank in range(16)
        ]
        sink.context.directory.add_pods(pods)
        answer = await send(sink, *(failed(rank) for rank in range(16)), failed(0, type="checkpoint_saved"))
        assert answer == Delivered(filtered=1)
        (request,) = receiver.received
    assert json.loads(request.body) == {
        "text": "llama: out of memory at iteration 70 (16 ranks, 16 pods, nodes gpu-0, gpu-1): "
        "CUDA &lt;!channel&gt; &amp; more\nhttp://lens:8080/#/workload?uid=job%2F1"
    }


async def test_pods_of_one_job_are_one_before_anybody_knows_their_workload(tmp_path: Path) -> None:
    labels = {"training.kubeflow.org/job-name": "llama"}
    pods = [Origin(pod_uid=f"u{n}", pod_name=f"p{n}", namespace="ml", labels=labels) for n in range(2)]
    async with HttpReceiver() as receiver:
        await send(make_sink(receiver, tmp_path), *(failed(0, origin=origin, details={}) for origin in pods))
        (request,) = receiver.received
    assert json.loads(request.body) == {"text": "llama: out of memory at iteration 70 (pods p0, p1)"}


async def test_the_same_is_told_again_only_after_a_while(tmp_path: Path) -> None:
    for quiet, messages in ((300.0, 2), (0.0, 4)):
        async with HttpReceiver() as receiver:
            sink = make_sink(receiver, tmp_path, quiet_seconds=quiet, format="discord")
            await sink.start()
            for _ in range(2):
                await sink.send(batch(failed(3), failed(3, type="stalled", event_time=1.7e9)))
            await sink.stop()
            bodies = [json.loads(request.body) for request in receiver.received]
            assert len(bodies) == messages
    assert (
        bodies[0]["content"]
        == "llama-3: out of memory at iteration 70 (rank 3, pod llama-3, node gpu-0): CUDA <!channel> & more"
    )
    assert bodies[0]["allowed_mentions"] == {"parse": []}
    assert ", on 2023-11-14 at 22:13 UTC: " in bodies[1]["content"]


async def test_what_is_refused_and_what_was_told_before_a_failure(tmp_path: Path) -> None:
    async with HttpReceiver() as receiver:
        sink = make_sink(receiver, tmp_path)
        receiver.will(200, 400)
        answer = await send(sink, failed(1), failed(2), failed(3, type="epoch_started"))
        assert isinstance(answer, Rejected)
        assert (list(answer.items), answer.filtered) == ([1], 1)
        await receiver.trouble("absent")
        away = await send(sink, failed(1))
        assert isinstance(away, Retry)
        assert "hunter2" not in away.reason


def test_an_address_that_is_none_is_said_without_it() -> None:
    with pytest.raises(ValueError, match="must begin with") as error:
        WebhookSettings(url=Secret("slack.example/hunter2"))
    assert "hunter2" not in str(error.value)
