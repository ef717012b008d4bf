"""Hostile requests to a running daemon, and their cost for other clients: `python tests/hostile.py URL`.

Plays bodies, questions and readers that are meant to hold a daemon up, and asks `/livez` all the while. Prints the
longest time that `/livez` took and, where the process can be seen (`--pid`), by how much its memory grew: afterwards,
and at the worst moment. Ends with 1
when an answer was a 5xx other than 503. The daemon must take data from here (LENS_TOKEN is sent if it is set).
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import psutil

from tests.durations import Stopwatch

LIVEZ_GOAL_SECONDS = 0.3
MEMORY_GOAL_BYTES = 64 * 1024 * 1024
_ASK_EVERY_SECONDS = 0.02


def _bodies(size: int) -> dict[str, tuple[str, bytes, dict[str, str]]]:
    """Path, body and headers of every attack with a body of about so many bytes."""
    chain = [{"uid": f"w{n}", "parent_uid": f"w{n + 1}"} for n in range(size // 40)]
    pod = {"record": "pod", "uid": "p", "name": "p", "workloads": chain}
    below = {str(number): 1 for number in range(size // 20)}
    escapes = b'{"workload_uid":"w","metrics":[NaN,"' + rb"\"" * (size // 2)
    parts = [{"workload_uid": "w", "message": "a", "logtag": "P", "stream": str(n)} for n in range(size // 60)]
    records = {"records": [{"record": "event", "type": "x", "details": {"n": 10**30}}] * (size // 70)}
    text = {"Content-Type": "application/json"}
    packed = {"Content-Type": "application/msgpack"}
    found: dict[str, tuple[str, bytes, dict[str, str]]] = {
        f"unfinished string to {path}": (path, escapes, text)
        for path in ("/wandb/metrics", "/wandb/logs", "/wandb/batch", "/wandb/detection", "/records", "/logs")
    }
    found |= {
        "chain of ancestors": ("/records", json.dumps({"records": [pod]}).encode(), text),
        "deep JSON": ("/records", b"[" * size, text),
        "deep MessagePack": ("/records", b"\x81\xa7records" + b"\x91" * size, packed),
        "a long name above numbers": (
            "/wandb/logs",
            json.dumps({"workload_uid": "w", "logs": [{"step": 1, "data": {"n" * (size // 2): below}}]}).encode(),
            text,
        ),
        "parts of lines": ("/logs", json.dumps(parts).encode(), text),
        "numbers over 64 bits": ("/records", json.dumps(records).encode(), text),
        "empty gzip members": ("/logs", gzip.compress(b"") * (size // 20), {**text, "Content-Encoding": "gzip"}),
        "zeros by gzip": ("/logs", gzip.compress(bytes(size * 100)), {**text, "Content-Encoding": "gzip"}),
        "deep question": ("/query", b'{"a":' * (size // 5), text),
        "bad UTF-8": ("/search", b'{"target":"\xff"}', text),
        "many targets": ("/query", json.dumps({"targets": [{"target": "a"}] * 10_000}).encode(), text),
    }
    return found


_QUESTIONS = (
    "/workloads/w/metrics/data?max_points=1000000000",
    "/workloads/w/metrics/data?aggregate=mean&interval=1ms&start=0&end=9000000000000",
    "/workloads/%00/metrics/data",
    "/workloads?cursor=99999999999999999999999:w",
    "/workloads?search=%00",
    "/nothing/here",
)


class Watch:
    """The longest time that `/livez` took, and the answers that were no answers."""

    def __init__(self, process: psutil.Process | None = None) -> None:
        self._process = process
        self.longest = 0.0
        self.during = ""
        self.most_bytes = 0
        self.what = ""
        self.failed: list[str] = []

    async def ask(self, client: httpx.AsyncClient) -> None:
        """Ask repeatedly, until cancelled."""
        while True:
            watch = Stopwatch()
            await client.get("/livez")
            taken = watch.seconds()
            if taken > self.longest:
                self.longest, self.during = taken, self.what
            if self._process:
                self.most_bytes = max(self.most_bytes, self._process.memory_info().rss)
            await asyncio.sleep(_ASK_EVERY_SECONDS)


@asynccontextmanager
async def _silent_readers(url: str, count: int) -> AsyncIterator[None]:
    """Readers of streams that never read."""
    host, port = httpx.URL(url).host, httpx.URL(url).port or 80
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /api/v1/tap HTTP/1.1\r\nHost: lens\r\n\r\n")
        writers.append(writer)
    try:
        yield
    finally:
        for writer in writers:
            writer.close()


async def play(
    url: str,
    *,
    size: int,
    readers: int,
    process: psutil.Process | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Watch:
    """Play everything against a daemon. The caller's process asks and attacks, so that its own load counts, too."""
    watch = Watch(process)
    token = os.environ.get("LENS_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx.AsyncClient(base_url=url, timeout=120) as livez,
        httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=120, headers=headers) as client,
        _silent_readers(url, readers),
    ):
        asking = asyncio.create_task(watch.ask(livez))
        try:
            for what, (path, body, extra) in _bodies(size).items():
                watch.what = what
                _note(watch, what, await client.post(path, content=body, headers=extra))
                say(f"{what}: longest /livez so far {watch.longest * 1000:.0f} ms")
            for path in _QUESTIONS:
                watch.what = path
                _note(watch, path, await client.get(path))
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    return watch


def _note(watch: Watch, what: str, answer: httpx.Response) -> None:
    if answer.status_code >= 500 and answer.status_code != 503:
        watch.failed.append(f"{what}: {answer.status_code} {answer.text[:200]}")


def main() -> int:
    """Run against a daemon that somebody started, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8080")
    parser.add_argument("--pid", type=int, help="the daemon's process, to see how its memory grows")
    parser.add_argument("--size", type=int, default=4_000_000, help="bytes of each body")
    parser.add_argument("--readers", type=int, default=600, help="readers of streams that never read")
    parser.add_argument("--quick", action="store_true", help="with small bodies and few readers")
    chosen = parser.parse_args()
    size, readers = (100_000, 20) if chosen.quick else (chosen.size, chosen.readers)
    process = psutil.Process(chosen.pid) if chosen.pid else None
    before = process.memory_info().rss if process else 0
    watch = asyncio.run(play(chosen.url.rstrip("/"), size=size, readers=readers, process=process, say=print))
    print(f"longest /livez: {watch.longest * 1000:.0f} ms ({watch.during}); goal {LIVEZ_GOAL_SECONDS * 1000:.0f} ms")
    if process:
        grown, most = (number / 2**20 for number in (process.memory_info().rss - before, watch.most_bytes - before))
        goal = MEMORY_GOAL_BYTES / 2**20
        print(f"memory grew by {grown:.1f} MiB, at the worst moment by {most:.1f} MiB; goal {goal:.0f} MiB")
    for failed in watch.failed:
        print(f"failed: {failed}", file=sys.stderr)
    return 1 if watch.failed else 0


if __name__ == "__main__":
    sys.exit(main())
