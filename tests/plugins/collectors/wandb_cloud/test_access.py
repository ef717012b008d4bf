from __future__ import annotations

import json
import socket
from pathlib import Path

import boto3
import pytest
from lens_plugins.collectors.wandb_cloud import find_access
from lens_plugins.collectors.wandb_cloud.figures import Access, WandbCloudSettings
from lens_plugins.collectors.wandb_cloud.listing import connect_api
from moto import mock_aws

from lens_core import ConfigurationError, LensError, Secret
from tests.durations import Stopwatch

REGION = "us-east-1"
COMPLETE = {"WANDB_API_KEY": "k", "WANDB_ENTITY": "acme", "WANDB_PROJECT": "llm"}


def test_settings_win_over_the_environment() -> None:
    settings = WandbCloudSettings(entity="other", api_key=Secret("mine"), base_url="http://w/")
    found = find_access(settings, {**COMPLETE, "WANDB_BASE_URL": "http://v"})
    assert (found.path, found.api_key.reveal(), found.base_url) == ("other/llm", "mine", "http://w")
    assert find_access(WandbCloudSettings(), COMPLETE).base_url == "https://api.wandb.ai"


@pytest.mark.parametrize("missing", list(COMPLETE))
def test_nothing_has_a_default(missing: str) -> None:
    with pytest.raises(ConfigurationError, match=missing):
        find_access(WandbCloudSettings(), {**COMPLETE, missing: ""})


def test_the_secret_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    name = "dev/datadog/collectors/wandb"
    with mock_aws():
        boto3.client("secretsmanager", region_name=REGION).create_secret(Name=name, SecretString=json.dumps(COMPLETE))
        for settings, environ in (
            (WandbCloudSettings(aws_secret=name, aws_region=REGION), {}),
            (WandbCloudSettings(aws_region=REGION), {"LENS_WANDB_AWS_SECRET": name}),
        ):
            found = find_access(settings, environ)
            assert (found.path, found.api_key.reveal()) == ("acme/llm", "k")
    assert repr(found.api_key) == "***"


def test_a_server_that_is_away_is_no_refused_key(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets it
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        access = Access(api_key=Secret("k" * 40), entity="acme", project="llm", base_url=url)
        watch = Stopwatch()
        with pytest.raises(LensError, match="cannot be reached") as refused:
            connect_api(access, 30, tmp_path)
    assert watch.seconds() < 10
    assert "refused the API key" not in str(refused.value)
