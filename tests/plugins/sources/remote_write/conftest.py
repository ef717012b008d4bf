from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cramjam
import httpx
import pytest
from lens_plugins.sources.remote_write.source import RemoteWrite

from lens_core import Device, Pod, SeriesBatch, WorkloadReference
from lens_core.directory.directory import Directory
from tests.plugins.sources.ingest_app import IngestApp
from tests.plugins.sources.remote_write.wire import WriteRequest, packed

JOB = WorkloadReference(uid="w-job", name="llama", kind="PyTorchJob", namespace="ml")
REPLICA = WorkloadReference(uid="w-set", name="llama-set", kind="ReplicaSet", namespace="ml", parent_uid="w-job")
PODS = [
    Pod(
        uid="u-a",
        name="llama-0",
        namespace="ml",
        node="n1",
        phase="Running",
        workloads=[REPLICA, JOB],
        devices=[Device(kind="gpu_id", id="0"), Device(kind="device", id="mlx5_0")],
    ),
    Pod(uid="u-b", name="lonely", namespace="ml", node="n1", phase="Running"),
    Pod(uid="u-c", name="twin", namespace="ml", node="n2", phase="Running", workloads=[JOB]),
    Pod(uid="u-d", name="twin", namespace="dev", node="n2", phase="Running"),
]


class Receiver(IngestApp):
    """The application around a remote_write source whose directory knows a few pods."""

    def __init__(self, data_dir: Path, settings: Any = None, pods: Sequence[Pod] = PODS) -> None:
        super().__init__(RemoteWrite, data_dir, settings=settings)
        self.directory: Directory = self.source.context.directory
        self.directory.replace(pods, "test")

    async def write(self, body: bytes, path: str = "/api/v1/write", **headers: str) -> httpx.Response:
        """POST a snappy block as Prometheus does; header names with underscores."""
        given = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.post(path, content=body, headers={name: value for name, value in given.items() if value})

    async def take(self, body: bytes, **headers: str) -> Any:
        """Return the forwarded part of an (uncompressed) request that is accepted."""
        answer = await self.write(packed(body), **headers)
        assert answer.status_code == 204, answer.text
        return self.last()

    def last(self) -> Any:
        """The last record's message."""
        record = self.gate.records[-1]
        assert isinstance(record, SeriesBatch)
        assert record.compression == "snappy"
        message = WriteRequest.FromString(bytes(cramjam.snappy.decompress_raw(record.body)))
        assert sum(len(one.samples) for one in message.timeseries) >= record.samples
        return message


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    return Receiver(tmp_path)


@pytest.fixture(scope="session", params=["interpreted", "compiled"])
def form(request: pytest.FixtureRequest) -> Any:
    """Each form of the hot path."""
    # Here, because the helpers need the pods of this file.
    from tests.plugins.sources.remote_write import forms

    return forms.interpreted if request.param == "interpreted" else forms.compiled()
