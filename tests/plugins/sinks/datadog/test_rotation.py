"""The key from Secrets Manager, as moto plays it: late, and rotated while the sink runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from lens_plugins.sinks.datadog import Datadog, DatadogSettings
from moto import mock_aws

from lens_core import Delivered, LensError, Retry
from lens_core.testing import make_context
from tests.plugins.sinks.datadog.intake import KEY, Intake
from tests.plugins.sinks.datadog.test_datadog import batch_of, gauge

REGION = "eu-west-1"


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Secrets Manager."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("DD_API_KEY", raising=False)
    with mock_aws():
        yield boto3.client("secretsmanager", region_name=REGION)


def sink_for(intake: Intake, folder: Path) -> Datadog:
    settings = DatadogSettings(aws_secret="datadog/api-key", aws_region=REGION, url=intake.url)
    return Datadog(settings, make_context("dd", folder))


async def test_a_rotated_key_is_fetched_after_a_refusal(secrets: Any, intake: Intake, tmp_path: Path) -> None:
    secrets.create_secret(Name="datadog/api-key", SecretString="old" * 10)
    sink = sink_for(intake, tmp_path)
    await sink.start()
    assert isinstance(await sink.send(batch_of([gauge()])), Retry)
    secrets.put_secret_value(SecretId="datadog/api-key", SecretString=KEY)
    assert await sink.send(batch_of([gauge()])) == Delivered()
    await sink.stop()


async def test_a_key_that_cannot_be_fetched_yet_is_fetched_later(
    secrets: Any, intake: Intake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets.create_secret(Name="datadog/api-key", SecretString=KEY)
    sink = sink_for(intake, tmp_path)

    def unreachable() -> str:
        raise LensError("AWS does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(sink, "_key", unreachable)
        await sink.start()
        answer = await sink.send(batch_of([gauge()]))
    assert isinstance(answer, Retry)
    assert "AWS does not answer" in answer.reason
    assert await sink.send(batch_of([gauge()])) == Delivered()
    await sink.stop()
