"""The HTTP server of the test kit ends with every connection that it has begun to accept."""

from __future__ import annotations

import asyncio
import gc
import socket

from lens_core.testing import HttpReceiver


async def test_no_connection_is_left_open_by_a_receiver_that_ends_while_it_accepts() -> None:
    """A socket that is left open is a warning when it is collected, which fails this test, or the next one."""
    for _ in range(50):
        async with HttpReceiver() as receiver:
            port = int(receiver.url.rpartition(":")[2])

            def connect(port: int = port) -> None:
                socket.create_connection(("127.0.0.1", port), timeout=30).close()

            await asyncio.to_thread(connect)
    gc.collect()
