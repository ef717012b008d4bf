from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf.message import Message
from lens_plugins.sources.otlp.settings import OtlpSettings
from lens_plugins.sources.otlp.source import Otlp

from lens_core import Pod, WorkloadReference
from tests.plugins.sources.ingest_app import IngestApp
from tests.plugins.sources.otlp.requests import encoded

PODS = [
    Pod(
        uid="u-0",
        name="llama-0",
        namespace="ml",
        node="n1",
        workloads=[WorkloadReference(uid="w-job", name="llama", kind="PyTorchJob")],
    )
]


class OtlpApp(IngestApp):
    """The application around the source, with a pod in its directory."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        super().__init__(Otlp, data_dir, settings=OtlpSettings(**settings))
        self.source.context.directory.replace(PODS)

    async def export(self, message: Message, path: str = "/v1/metrics") -> httpx.Response:
        """The answer to a message; raises AssertionError unless it is a success."""
        answer = await self.post(path, **encoded(message))
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/x-protobuf"
        return answer


@pytest.fixture
def otlp(tmp_path: Path) -> OtlpApp:
    return OtlpApp(tmp_path)
