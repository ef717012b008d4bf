"""For otlp.py: the client and the null sink behind Lens, in a process of their own.

Reads one JSON job from standard input, prints one JSON result. The clock runs from the first byte sent to the last
answer: a success of Lens means that the points are in its spool.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import msgspec
import uvloop

from benchmarks.remote_write_load import Sink, send


class Job(msgspec.Struct, kw_only=True):
    """The load to send: every file of a folder is a body of `points` points; `arrives`: they reach the null sink."""

    folder: str
    points: int
    sink_port: int
    arrives: bool
    rounds: int = 1
    connections: int = 4
    timeout_seconds: float = 60.0


class Result(msgspec.Struct, kw_only=True):
    """`sent` are points that were acknowledged; `statuses` what the requests were answered."""

    sent: int
    points_per_second: float
    statuses: dict[str, int]


async def run(port: int, job: Job) -> Result:
    """Send everything; wait until a sink has got it, where there is one."""
    bodies = [path.read_bytes() for path in sorted(Path(job.folder).iterdir())] * job.rounds
    Sink.done = asyncio.Event()
    Sink.wanted = len(bodies) * job.points
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", job.sink_port)
    statuses: dict[str, int] = {}
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    for body in [*bodies, *[None] * job.connections]:
        queue.put_nowait(body)
    began = time.perf_counter()
    clients = (
        send("127.0.0.1", port, "/v1/metrics", queue, statuses, headers="", success="200")
        for _ in range(job.connections)
    )
    await asyncio.gather(*clients)
    seconds = time.perf_counter() - began
    if job.arrives:
        await asyncio.wait_for(Sink.done.wait(), job.timeout_seconds)
    server.close()
    return Result(sent=Sink.wanted, points_per_second=Sink.wanted / seconds, statuses=statuses)


def main() -> None:
    """`otlp_load PORT`, the job on standard input."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(run(int(sys.argv[1]), job))))


if __name__ == "__main__":
    main()
