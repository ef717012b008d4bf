"""Servers that do not answer for their streams, as a daemon knows and tells it."""

from __future__ import annotations

import pytest
from nats.js import errors

from lens_core.base.errors import Overloaded
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
