"""For remote_write.py: the same client and the same null sink for Lens and vmagent, in a process of their own.

Reads one JSON job from standard input, prints one JSON result. The client keeps every connection busy; the sink counts
the samples that arrive. The clock runs from the first byte sent to the last sample that arrived.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from pathlib import Path
from typing import Any, cast

import cramjam
import httptools
import msgspec
import uvloop

from lens_core.plugin_api.protobuf import delimited, splitter, varint

START_MS = 1_795_000_000_000
Parts: Any = splitter("WriteRequest", {"timeseries": 1})


class Job(msgspec.Struct, kw_only=True):
    """The load to send: `groups` bodies of `series` series, `rounds` times; with `fresh` every round has new series.

    With `recorded`, the path of a real sender's request with as many series, they are those of hosts of that sender.
    """

    sink_port: int
    groups: int = 10
    series: int = 2000
    rounds: int = 20
    warm_rounds: int = 2
    connections: int = 4
    fresh: bool = False
    generation: int = 0
    recorded: str = ""
    timeout_seconds: float = 40.0


class Result(msgspec.Struct, kw_only=True):
    """`sent` and `arrived` are samples; `statuses` what the requests were answered."""

    sent: int
    arrived: int
    samples_per_second: float
    bytes_received: int
    statuses: dict[str, int]


def label_block(group: int, number: int) -> bytes:
    """Nine labels, as an exporter of devices in a cluster has them; the pod is one of a hundred."""
    labels = {
        "__name__": f"device_metric_{number % 50}_total",
        "cluster": "production",
        "container": "main",
        "device_index": str(number),
        "instance": f"10.0.{group}.{number % 250}:9400",
        "job": "device-exporter",
        "model": "accelerator-x-64gb",
        "namespace": "training",
        "pod": f"job-worker-{(group * 7 + number) % 100}",
    }
    return b"".join(label(name, value) for name, value in labels.items())


def label(name: str, value: str) -> bytes:
    """A label as a field of a series."""
    return delimited(1, delimited(1, name.encode()) + delimited(2, value.encode()))


class Bodies:
    """Makes the bodies, each round with the next timestamp; a tenth label makes the label sets new if wanted."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._recorded = b""
        if job.recorded:
            self._recorded = bytes(cramjam.snappy.decompress_raw(Path(job.recorded).read_bytes()))
        self._blocks = [[label_block(g, n) for n in range(job.series)] for g in range(job.groups)]

    def body(self, group: int, step: int) -> bytes:
        """The snappy block of one group at one time."""
        if self._recorded:
            host = 1000 + group + (self._job.groups * (step + self._job.generation) if self._job.fresh else 0)
            # An address of the same length, so that the request stays what it is.
            address = f"{host // 1000 % 1000:03}.{host // 100 % 10}.{host // 10 % 10}.{host % 10}".encode()
            return bytes(cramjam.snappy.compress_raw(self._recorded.replace(b"127.0.0.1", address)))
        rack = label("rack", f"r{group}-{step + self._job.generation if self._job.fresh else 0}")
        stamp = b"\x10" + varint(START_MS + step * 15_000)
        parts: list[bytes] = []
        for number, block in enumerate(self._blocks[group]):
            tail = b"\x12\x10\x09" + struct.pack("<d", 0.5 + number + step) + stamp
            parts += (b"\x0a" + varint(len(block) + len(rack) + 18), block, rack, tail)
        return bytes(cramjam.snappy.compress_raw(b"".join(parts)))


class Sink(asyncio.Protocol):
    """Counts samples and answers 204."""

    arrived = 0
    bytes_received = 0
    last = 0.0
    wanted = 0
    done: asyncio.Event

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A new connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._pieces: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self._parser.feed_data(data)

    def on_body(self, piece: bytes) -> None:
        """A piece of a body."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """A whole request."""
        body = b"".join(self._pieces)
        self._pieces = []
        message = Parts.FromString(bytes(cramjam.snappy.decompress_raw(body)))
        Sink.arrived += len(message.timeseries)
        Sink.bytes_received += len(body)
        Sink.last = time.perf_counter()
        self._transport.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
        if Sink.arrived >= Sink.wanted:
            Sink.done.set()


REMOTE_WRITE = "Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\n"


async def send(
    url_host: str,
    port: int,
    path: str,
    jobs: asyncio.Queue[bytes | None],
    statuses: dict[str, int],
    *,
    headers: str = REMOTE_WRITE,
    success: str = "204",
) -> None:
    """One connection of the client; what is not answered with success is sent again."""
    reader, writer = await asyncio.open_connection(url_host, port, limit=1 << 20)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {url_host}:{port}\r\nContent-Type: application/x-protobuf\r\n"
        f"User-Agent: benchmark\r\n{headers}"
    )
    while (body := await jobs.get()) is not None:
        status = ""
        while status != success:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status = answer.split(" ", 2)[1]
            statuses[status] = statuses.get(status, 0) + 1
            for line in answer.split("\r\n"):
                if line.startswith("content-length:"):
                    await reader.readexactly(int(line.split(":")[1]))
            if status != success:
                await asyncio.sleep(0.05)
    writer.close()


async def run(host: str, port: int, path: str, job: Job) -> Result:
    """Warm up, then send everything and wait until it has arrived."""
    loop = asyncio.get_running_loop()
    Sink.done = asyncio.Event()
    server = await loop.create_server(Sink, "127.0.0.1", job.sink_port)
    bodies = Bodies(job)
    statuses: dict[str, int] = {}
    began = 0.0
    for first, last in ((0, job.warm_rounds), (job.warm_rounds, job.warm_rounds + job.rounds)):
        ready = [bodies.body(group, step) for step in range(first, last) for group in range(job.groups)]
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for body in [*ready, *[None] * job.connections]:
            queue.put_nowait(body)
        Sink.arrived = Sink.bytes_received = 0
        Sink.wanted = len(ready) * job.series
        Sink.done.clear()
        if not ready:
            continue
        began = time.perf_counter()
        await asyncio.gather(*(send(host, port, path, queue, statuses) for _ in range(job.connections)))
        await asyncio.wait_for(Sink.done.wait(), job.timeout_seconds)
    server.close()
    return Result(
        sent=Sink.wanted,
        arrived=Sink.arrived,
        samples_per_second=Sink.arrived / (Sink.last - began),
        bytes_received=Sink.bytes_received,
        statuses=statuses,
    )


def main() -> None:
    """`remote_write_load HOST PORT PATH`, the job on standard input."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    result = uvloop.run(run(sys.argv[1], int(sys.argv[2]), sys.argv[3], job))
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
