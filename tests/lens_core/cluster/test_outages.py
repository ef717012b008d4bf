"""Servers that do not answer for their streams, as a daemon knows and tells it."""

from __future__ import annotations

from typing import Any

import pytest
from nats.js import errors

from lens_core.base.errors import Overloaded
from lens_core.cli.checks_symptoms import other_daemons
from lens_core.cli.cluster import _print_cluster
from lens_core.cluster.connection import Connection, LogFull, describe_client_error
from lens_core.cluster.log_stream import LogStream
from lens_core.cluster.messages import ROWS
from lens_core.cluster.pipeline import ClusterLog
from lens_core.config.settings import ClusterSettings


class Answering(Connection):
    """A connection whose servers take a message, or answer with an error."""

    problem: Exception | None = None

    @property
    def is_connected(self) -> bool:
        return True

    async def append_message(self, stream: str, subject: str, body: bytes, headers: dict[str, str]) -> int:
        if self.problem is not None:
            raise self.problem
        return 1

    async def notify(self, subject: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        return None


@pytest.mark.parametrize("problem", [Overloaded("NATS does not answer: timeout"), LogFull("the log is full")])
async def test_a_daemon_is_not_ready_until_a_message_is_taken_again(problem: Overloaded) -> None:
    connection = Answering(ClusterSettings(nats=["nats://h:4222"]))
    stream = LogStream(connection, "default", 1024, 1024)
    log = ClusterLog(stream)
    assert log.why_full() == ""
    connection.problem = problem
    with pytest.raises(Overloaded):
        await stream.append_to(0, ROWS, b"x", {})
    assert log.why_full() == problem.message
    connection.problem = None
    await stream.append_to(0, ROWS, b"x", {})
    assert log.why_full() == ""


def test_a_server_whose_disk_was_full_is_told_apart() -> None:
    assert "disk was full" in describe_client_error(errors.NoStreamResponseError())
    assert "disk was full" in describe_client_error(errors.ServiceUnavailableError(code=503))
    assert "disk" not in describe_client_error(TimeoutError())


def test_a_daemon_that_has_lost_nats_says_so_where_it_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    stream = {"name": "lens_default", "leader": "n0", "bytes": 0, "max_bytes": 1 << 20, "refusal": "", "outage": ""}
    shared: dict[str, Any] = {
        "name": "lens",
        "member": "a",
        "members": {},
        "holders": {"partition.0": "a"},
        "partitions": 1,
        "allow_unsafe": False,
        "lags": {},
        "streams": [stream],
        "silent": ["b"],
    }
    assert [one.text for one in other_daemons({"shared": shared})] == ["daemons that do not answer: b"]
    _print_cluster(shared)
    assert "nothing waits" in capsys.readouterr().out
    shared["streams"] = [{**stream, "outage": "NATS is not connected"}]
    assert [one.text for one in other_daemons({"shared": shared})] == ["NATS is not connected"]
    _print_cluster(shared)
    shown = capsys.readouterr().out
    assert shown.startswith("NATS is not connected: the daemon that was asked shows what it last knew")
    assert "nothing waits" not in shown
