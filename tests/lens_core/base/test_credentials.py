from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from lens_core import ConfigurationError, LensError, Secret
from lens_core.plugin_api.credentials import find_credentials, read_secret

REGION = "eu-west-1"
NAMES = ("WANDB_API_KEY", "WANDB_ENTITY", "WANDB_PROJECT")


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Secrets Manager as moto plays it, asked by the real boto3."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with mock_aws():
        yield boto3.client("secretsmanager", region_name=REGION)


def plain(found: dict[str, Secret]) -> dict[str, str]:
    return {name: secret.reveal() for name, secret in found.items()}


def test_the_environment_comes_first_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"WANDB_API_KEY": " key ", "WANDB_ENTITY": "", "OTHER": "x"}
    assert plain(find_credentials(NAMES, environ)) == {"WANDB_API_KEY": "key"}


def test_one_json_secret_for_all(secrets: Any) -> None:
    content = {"WANDB_API_KEY": "k", "WANDB_ENTITY": "acme", "WANDB_PROJECT": "llm", "MORE": "x", "NUMBER": 5}
    secrets.create_secret(Name="dev/datadog/collectors/wandb", SecretString=json.dumps(content))
    found = find_credentials(
        NAMES, {"WANDB_PROJECT": "mine"}, aws_secret="dev/datadog/collectors/wandb", aws_region=REGION
    )
    assert plain(found) == {"WANDB_API_KEY": "k", "WANDB_ENTITY": "acme", "WANDB_PROJECT": "mine"}


@pytest.mark.parametrize("stored", [{"SecretString": "plain-key\n"}, {"SecretBinary": b"plain-key"}])
def test_one_secret_per_key(secrets: Any, stored: dict[str, Any]) -> None:
    secrets.create_secret(Name="wandb/api-key", **stored)
    assert plain(find_credentials(NAMES, {}, aws_secret="wandb/api-key", aws_region=REGION)) == {
        "WANDB_API_KEY": "plain-key"
    }


def test_a_rotated_secret_is_seen(secrets: Any) -> None:
    secrets.create_secret(Name="key", SecretString="old")
    assert plain(read_secret("key", REGION, first="A")) == {"A": "old"}
    secrets.put_secret_value(SecretId="key", SecretString="new")
    assert plain(read_secret("key", REGION, first="A")) == {"A": "new"}


def test_what_cannot_be_used_is_said(secrets: Any) -> None:
    with pytest.raises(ConfigurationError, match="the AWS secret nowhere cannot be read: ResourceNotFoundException"):
        read_secret("nowhere", REGION, first="A")
    secrets.create_secret(Name="binary", SecretBinary=b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="is binary"):
        read_secret("binary", REGION, first="A")
    secrets.create_secret(Name="blank", SecretString=" ")
    with pytest.raises(ConfigurationError, match="is empty"):
        read_secret("blank", REGION, first="A")


def test_without_a_region_it_is_said(secrets: Any) -> None:
    with pytest.raises(LensError, match="region"):
        read_secret("key", "", first="A")


def test_secrets_are_never_shown(secrets: Any) -> None:
    secrets.create_secret(Name="key", SecretString="s3cret-text")
    assert "s3cret-text" not in repr(read_secret("key", REGION, first="A"))


def test_aws_is_not_asked_for_what_is_there() -> None:
    """No moto here: a question would fail."""
    environ = dict.fromkeys(NAMES, "x")
    assert set(find_credentials(NAMES, environ, aws_secret="key", aws_region=REGION)) == set(NAMES)
