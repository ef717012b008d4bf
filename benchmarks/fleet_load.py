"""For fleet.py: thousands of ranks that behave on the network as the hook does, in a process of their own.

Reads one JSON job from standard input, prints a line of JSON every second and a last one at the end. A rank speaks as
`lens_hook` does: one kept-alive connection, a look every flush interval, one request at a time that takes all rows that
wait, rests after a slow one, full jitter after a failure; at its start an event and evidence, at its end an event.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from typing import Any, cast

import msgspec
import uvloop
from lens_hook.client import REQUEST_SECONDS
from lens_hook.sender import pause_after, rest_after

from lens_core.base.compression import compress
from lens_core.model.records import Origin, decode_json_envelope, encode_envelope

CONNECT_SECONDS = 5.0
CROWDED_ROWS = 700  # 256 KiB
RANKS_PER_POD = 8
MODULES = {f"module_{number:03}": f"{number % 7}.{number % 13}.0" for number in range(180)} | dict.fromkeys(
    ("torch", "transformers", "accelerate", "deepspeed", "numpy", "wandb", "datasets"), "2.1.0"
)
HEAD = (
    "POST /api/v1/records HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\nContent-Type: application/json\r\n"
    "User-Agent: lens-hook/0.1.0\r\nContent-Length: "
)
RELAYED_HEAD = (
    "POST /api/v1/records HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nContent-Type: application/msgpack\r\n"
    "Content-Encoding: zstd\r\nUser-Agent: python-httpx/0.28\r\nContent-Length: "
)


class Job(msgspec.Struct, kw_only=True):
    """`ranks` in `jobs`, all started within `start_seconds`, each with a row of `metrics` every `step_seconds`.

    `failures` and `backlog_rows`: how things stand for every rank at the beginning, as after an outage. `by_pod`: ranks
    know their pod and no workload. `relayed`: what the ranks of a pod say comes from their node's daemon, as the sink
    `http` sends it. Runs for `seconds`.
    """

    host: str
    port: int
    ranks: int
    jobs: int
    start_seconds: float = 60.0
    step_seconds: float = 5.0
    flush_seconds: float = 1.0
    metrics: int = 8
    seconds: float = 60.0
    failures: int = 0
    backlog_rows: int = 0
    by_pod: bool = False
    relayed: bool = False
    seed: int = 1
    ends: bool = False


class Tally:
    """The answers that all ranks got."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.rows = 0
        self.connects = 0
        self.open = 0

    def take(self) -> dict[str, Any]:
        """The figures since the last call."""
        found = sorted(self.latencies)
        self.latencies = []
        answers, self.answers = dict(self.answers), Counter()
        rows, self.rows = self.rows, 0
        connects, self.connects = self.connects, 0
        middle, tail = (found[len(found) // 2], found[int(len(found) * 0.99)]) if found else (0.0, 0.0)
        return {
            "answers": answers,
            "rows": rows,
            "connects": connects,
            "open": self.open,
            "p50": round(middle, 4),
            "p99": round(tail, 4),
        }


class Connection(asyncio.Protocol):
    """One connection; a request is answered through a future."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._buffer = b""
        self.transport: asyncio.Transport | None = None
        self.waiter: asyncio.Future[tuple[int, float | None]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast(asyncio.Transport, transport)
        self._tally.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """The daemon closed it."""
        self.transport = None
        self._tally.open -= 1
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        """A piece of an answer."""
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        lines = head.lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines[1:])
        if len(rest) < int(fields.get(b"content-length", b"0")):
            return
        self._buffer = b""
        wanted = fields.get(b"retry-after")
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result((int(lines[0][9:12]), float(wanted) if wanted else None))


class Rank:
    """One training process."""

    def __init__(self, number: int, job: Job, tally: Tally) -> None:
        per_job = max(1, job.ranks // job.jobs)
        self._job, self._tally, self._rank = job, tally, number % per_job
        head = RELAYED_HEAD if job.relayed else HEAD
        self._head = head.format(host=f"{job.host}:{job.port}").encode()
        self._neighbours: dict[int, Origin] = {}
        pod = number // RANKS_PER_POD
        origin: dict[str, Any] = {} if job.by_pod else {"workload_uid": f"fleet-{job.seed}-{number // per_job}"}
        origin |= {"pod_uid": f"00000000-{job.seed:04}-0000-0000-{pod:012}", "pod_name": f"fleet-{job.seed}-{pod}"}
        origin |= {"namespace": "training", "rank": self._rank, "local_rank": number % RANKS_PER_POD}
        origin |= {"node_rank": self._rank // RANKS_PER_POD, "world_size": per_job}
        envelope = {"version": 1, "producer": "lens-hook/0.1.0", "origin": origin, "records": []}
        self._envelope = msgspec.json.encode(envelope)[:-2]
        self._run = f"run{job.seed}{number:06}"
        self._session = f"{int(time.time() * 1e6)}-{number:012x}"
        self._sequence = 0
        self._step = 0
        self._facts: list[bytes] = []
        self._rows: list[bytes] = []
        self._connection: Connection | None = None
        self._failures = job.failures
        self._not_before = 0.0
        self._rest_until = 0.0

    def _record(self, **fields: Any) -> bytes:
        now = time.time()
        self._sequence = max(self._sequence + 1, int(now * 1e6))
        whole = {"run_id": self._run, "session": self._session, "event_time": now, "sequence": self._sequence}
        return msgspec.json.encode(fields | whole)

    def _start(self) -> None:
        self._facts.append(
            self._record(record="event", type="training_started", data_source="wandb", details={"source": "wandb"})
        )
        config = {"lr": 1e-4, "batch": 8, "model": "llama", "tp": 8, "pp": 4, "tokenizer": "x" * 60}
        facts: dict[str, Any] = {"wandb": {"project": "llm", "id": self._run, "tags": [], "config": config}}
        facts |= {"environment": {"WORLD_SIZE": "50", "RANK": str(self._rank)}, "modules": MODULES}
        facts |= {"pytorch": {"available": True, "version": "2.13.0", "cuda_version": "12.4"}}
        facts |= {"system": {"python_version": "3.11.9", "python_executable": "/usr/bin/python", "platform": "Linux"}}
        self._facts.append(self._record(record="evidence", source="wandb", facts=facts))

    def log(self) -> None:
        """A training step."""
        values = {f"train/metric_{number}": 0.5123 + number + self._step / 7 for number in range(self._job.metrics)}
        step = self._step
        self._step += 1
        self._rows.append(
            self._record(record="step_metrics", data_source="wandb", row_step=step, iteration=step, values=values)
        )

    async def live(self, until: float) -> None:
        """From start to end."""
        job = self._job
        await asyncio.sleep(random.uniform(0.0, job.start_seconds))
        self._start()
        for _ in range(job.backlog_rows):
            self.log()
        if job.failures:
            self._not_before = time.monotonic() + pause_after(job.failures, None)
        steps = asyncio.create_task(self._train(until))
        while time.monotonic() < until:
            await asyncio.sleep(job.flush_seconds)
            await self._flush()
        steps.cancel()
        if job.ends:
            ended = {"source": "wandb", "finished": True, "exit_code": 0}
            self._facts.append(self._record(record="event", type="training_ended", data_source="wandb", details=ended))
            self._not_before = self._rest_until = 0.0
            await self._flush()
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.close()

    async def _train(self, until: float) -> None:
        while time.monotonic() < until:
            self.log()
            await asyncio.sleep(self._job.step_seconds)

    def _body(self, facts: list[bytes], rows: list[bytes]) -> bytes:
        """Make the body of a request; a node's daemon sends the same of each of its ranks."""
        body = self._envelope + b",".join([*facts, *rows]) + b"]}"
        if not self._job.relayed:
            return body
        decoded = decode_json_envelope(body)
        records = [
            msgspec.structs.replace(
                record, origin=self._neighbour(decoded.origin, place), run_id=f"{self._run}-{place}"
            )
            for record in decoded.records
            for place in range(RANKS_PER_POD)
        ]
        return compress(encode_envelope(records), "zstd")

    def _neighbour(self, origin: Origin, place: int) -> Origin:
        known = self._neighbours.get(place)
        if known is None:
            known = msgspec.structs.replace(origin, rank=self._rank * RANKS_PER_POD + place, local_rank=place)
            self._neighbours[place] = known
        return known

    async def _flush(self) -> None:
        while (self._rows or self._facts) and time.monotonic() >= self._not_before and not self._is_resting():
            facts, rows = list(self._facts), self._rows[:1000]
            body = self._body(facts, rows)
            begun = time.monotonic()
            status, retry_after = await self._post(body)
            ended = time.monotonic()
            self._tally.latencies.append(ended - begun)
            self._tally.answers[str(status)] += 1
            if status != 200:
                self._failures += 1
                self._not_before = time.monotonic() + pause_after(self._failures, retry_after)
                return
            self._failures, self._rest_until = 0, ended + rest_after(ended - begun)
            self._tally.rows += len(rows)
            del self._facts[: len(facts)], self._rows[: len(rows)]

    def _is_resting(self) -> bool:
        return time.monotonic() < self._rest_until and len(self._rows) < CROWDED_ROWS

    async def _post(self, body: bytes) -> tuple[int, float | None]:
        kept = self._connection is not None and self._connection.transport is not None
        try:
            return await self._exchange(body)
        except asyncio.TimeoutError:
            self._close()
            return 0, None
        except OSError:
            self._close()
            if not kept:
                return 0, None
        try:
            return await self._exchange(body)
        except (asyncio.TimeoutError, OSError):
            self._close()
            return 0, None

    async def _exchange(self, body: bytes) -> tuple[int, float | None]:
        loop = asyncio.get_running_loop()
        if self._connection is None or self._connection.transport is None:
            self._tally.connects += 1
            made = loop.create_connection(lambda: Connection(self._tally), self._job.host, self._job.port)
            _, self._connection = await asyncio.wait_for(made, CONNECT_SECONDS)
        connection = self._connection
        if connection is None or connection.transport is None:
            raise ConnectionError("closed")
        connection.waiter = loop.create_future()
        connection.transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        return await asyncio.wait_for(connection.waiter, REQUEST_SECONDS)

    def _close(self) -> None:
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.abort()
        self._connection = None


async def run(job: Job) -> None:
    """All ranks until the end, a line of figures every second."""
    tally = Tally()
    until = time.monotonic() + job.seconds
    ranks = [asyncio.create_task(Rank(number, job, tally).live(until)) for number in range(job.ranks)]
    begun = time.monotonic()
    everyone = asyncio.gather(*ranks)
    while not everyone.done():
        await asyncio.wait([everyone], timeout=1.0)
        line = {"at": round(time.monotonic() - begun, 1), **tally.take()}
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()
    everyone.result()


if __name__ == "__main__":
    uvloop.run(run(msgspec.json.decode(sys.stdin.buffer.read(), type=Job)))
