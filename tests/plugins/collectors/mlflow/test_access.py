"""The login of the collector, and its words about servers that refuse, are in trouble, or are none."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from lens_plugins.collectors.mlflow import Mlflow, MlflowSettings
from lens_plugins.collectors.mlflow.api import MlflowApi
from lens_plugins.collectors.mlflow.rows import Value, rows_of_values, sequence_of
from lens_plugins.collectors.mlflow.settings import login_headers
from moto import mock_aws

from lens_core import Backoff, ConfigurationError, Context, LensError, Origin, Secret, SelfMetrics
from lens_core.testing.receiver import HttpReceiver

EXPERIMENTS = "/api/2.0/mlflow/experiments/search"
TOKEN = {"MLFLOW_TRACKING_TOKEN": "t0k"}
LOGIN = {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "pw"}


def settings_for(url: str = "http://mlflow:5000", **options: Any) -> MlflowSettings:
    """Settings for a server."""
    return MlflowSettings(url=url, **options)


def test_settings_win_over_the_environment_of_the_client() -> None:
    bearer = {"Authorization": "Bearer mine"}
    assert login_headers(settings_for(token=Secret("mine")), {**TOKEN, **LOGIN}) == (bearer, None)
    assert login_headers(settings_for(username="you", password=Secret("x")), TOKEN) == ({}, ("you", "x"))
    assert login_headers(settings_for(), TOKEN) == ({"Authorization": "Bearer t0k"}, None)
    assert login_headers(settings_for(), LOGIN) == ({}, ("me", "pw"))
    assert login_headers(settings_for(), {}) == ({}, None)


def test_the_login_of_an_address_is_taken_out_of_it() -> None:
    settings = settings_for("https://me:s3cret@mlflow.example")
    assert settings.url == "https://mlflow.example"
    assert login_headers(settings, {}) == ({}, ("me", "s3cret"))
    assert "s3cret" not in repr(settings)


def test_a_login_from_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("secretsmanager", region_name="us-east-1")
        client.create_secret(Name="good", SecretString=json.dumps(LOGIN))
        client.create_secret(Name="other", SecretString=json.dumps({"KEY": "x"}))
        good = settings_for(aws_secret="good", aws_region="us-east-1")
        assert login_headers(good, {}) == ({}, ("me", "pw"))
        with pytest.raises(ConfigurationError, match="has neither MLFLOW_TRACKING_TOKEN"):
            login_headers(settings_for(aws_secret="other", aws_region="us-east-1"), {})


def test_the_environment_of_a_command() -> None:
    found = Mlflow.settings_from({"MLFLOW_TRACKING_URI": "https://mlflow:5000/"})
    assert found is not None
    assert found.base_url == "https://mlflow:5000"
    assert Mlflow.settings_from({"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}) is None
    assert Mlflow.settings_from({}) is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"ca_file": "/nowhere"}, "ca_file"), ({"page_url": "mlflow"}, "page_url"), ({"url": "http:// x"}, "url")],
)
def test_options_that_cannot_be(options: dict[str, str], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert({"url": "http://mlflow:5000", **options}, MlflowSettings)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are repeated at once."""
    monkeypatch.setattr(Backoff, "next_delay", lambda self: 0.0)


async def ask(server: HttpReceiver, **options: Any) -> dict[str, str]:
    """Ask a server for its experiments."""
    api = MlflowApi(settings_for(server.url, **options), logging.getLogger("tests.mlflow"))
    try:
        found: dict[str, str] = await api.experiments()
        return found
    finally:
        await api.close()


async def test_a_request_that_may_succeed_is_repeated(no_pauses: None) -> None:
    async with HttpReceiver(answer=lambda _: b'{"experiments": [{"experiment_id": "1", "name": "n"}]}') as server:
        server.will(503, 429)
        assert await ask(server, token=Secret("t0k")) == {"1": "n"}
        assert server.received[0].headers["authorization"] == "Bearer t0k"
        server.will(500, 500, 500)
        with pytest.raises(LensError, match=r"does not answer .*HTTP 500"):
            await ask(server)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"no", "set `username` and `password`, or `token`"),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "not yours"}', "not yours.*set `username`"),
        (302, b"", "redirects"),
        (404, b"<html>", "refuses"),
        (200, b"<html>Sign in</html>", "no MLflow server answers.*login page"),
        (200, b'{"experiments": [{"experiment_id": 5}]}', "no MLflow server answers"),
    ],
)
async def test_what_is_wrong_is_said_without_the_login(no_pauses: None, status: int, body: bytes, words: str) -> None:
    async with HttpReceiver() as server:
        server.answers(body, EXPERIMENTS, status=status)
        with pytest.raises(LensError, match=words) as refused:
            await ask(server, username="me", password=Secret("s3cret"))
    assert "s3cret" not in str(refused.value)
    assert server.requests == 1


async def test_an_answer_that_is_too_large_is_not_read(no_pauses: None) -> None:
    async with HttpReceiver() as server:
        server.answers(b'{"experiments": [' + b" " * 2**21 + b"]}", EXPERIMENTS)
        with pytest.raises(LensError, match="max_body_bytes"):
            await ask(server, max_body_bytes=2**20)


async def test_a_collector_that_cannot_log_in_says_so(tmp_path: Path, no_pauses: None) -> None:
    async with HttpReceiver() as server:
        server.answers(b"no", EXPERIMENTS, status=401)
        context = Context(name="m", logger=logging.getLogger("m"), data_dir=tmp_path, metrics=SelfMetrics())
        collector = Mlflow(settings_for(server.url), context)
        await collector.start()
        with pytest.raises(LensError, match="set `username`"):
            await collector.collect()
        with pytest.raises(LensError, match="set `username`"):
            await collector.check()
        await collector.stop()


def test_times_in_another_unit_keep_their_order() -> None:
    stamps = [-5, 0, 1_700_000_000, 1_700_000_000_000, 1_700_000_000_000_000_000, 2**63 - 1, 2**80]
    sequences = [sequence_of(stamp, 0) for stamp in stamps]
    assert all(abs(one) < 2**63 for one in sequences)
    rows = list(rows_of_values(Origin(workload_uid="w"), "r", [Value("a", 1, stamp, 0, 1.0) for stamp in stamps]))
    assert len(rows) == len(stamps)
    msgspec.convert(msgspec.to_builtins(rows), list[type(rows[0])])  # type: ignore[misc] # all of it is within bounds
