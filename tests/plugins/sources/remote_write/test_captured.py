from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import cramjam
import msgspec
import pytest

from lens_core import Pod, WorkloadReference
from tests.plugins.sources.remote_write.conftest import Receiver
from tests.plugins.sources.remote_write.wire import V2_TYPE, Request2, WriteRequest, labels_of, packed, request, series

BODIES = Path(__file__).parents[3] / "data" / "remote_write_bodies"
INDEX: list[Any] = sorted(path.stem for path in BODIES.glob("*.snappy"))


@pytest.mark.parametrize("name", INDEX)
async def test_body_of_a_real_sender_passes_byte_for_byte(receiver: Receiver, name: str) -> None:
    body = (BODIES / f"{name}.snappy").read_bytes()
    headers = msgspec.json.decode((BODIES / f"{name}.json").read_bytes())
    sent = dict(headers["headers"])
    for _ in range(2):
        answer = await receiver.write(body, content_type=sent["content-type"], user_agent=sent["user-agent"])
        assert answer.status_code == 204
        assert receiver.last().SerializeToString() == bytes(cramjam.snappy.decompress_raw(body))


@pytest.mark.parametrize("name", [name for name in INDEX if "metadata" not in name])
async def test_attaching_changes_labels_alone(tmp_path: Path, name: str) -> None:
    body = (BODIES / f"{name}.snappy").read_bytes()
    message = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(body)))
    for one in message.timeseries:
        one.labels.add(name="pod_uid", value="u")
    receiver = Receiver(tmp_path, pods=[Pod(uid="u", name="p", workloads=[WorkloadReference(uid="w", name="job")])])
    passed = await receiver.take(message.SerializeToString())
    for one, was in zip(passed.timeseries, message.timeseries, strict=True):
        added = {"pod_name": "p", "pod_uid": "u", "workload_name": "job", "workload_uid": "w"}
        assert labels_of(one) == {**labels_of(was), **added}
        del one.labels[:], was.labels[:]
        assert one.SerializeToString() == was.SerializeToString()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
async def test_large_body_lets_others_work(receiver: Receiver, version: str) -> None:
    body, kind = packed(request(*(series({"__name__": "up", "n": str(n)}, (1.0, n)) for n in range(6000)))), ""
    if version == "2.0":
        second = Request2()
        for n in range(6000):
            second.add({"__name__": "up", "n": str(n % 100)}, (1.0, n))
        body, kind = second.body(), V2_TYPE
    turns = 0
    done = asyncio.Event()

    async def other() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert (await receiver.write(body, content_type=kind)).status_code == 204
    done.set()
    await task
    assert [one.samples[0].timestamp for one in receiver.last().timeseries] == list(range(6000))
    assert turns >= 2
