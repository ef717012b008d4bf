"""Three NATS servers, three daemons and their senders as processes, and faults that hit them at random."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

from lens_core import LogLine, Origin, Record, StepMetrics
from lens_core.model.records import encode_envelope
from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.nats_servers import NatsServers

DAEMONS = 3
LEASE_SECONDS = 1.5
JOBS = 5


def line(step: int) -> LogLine:
    """A line of Megatron for one step of the job `job`."""
    text = f"[2026-01-01 00:00:{step % 60:02d}] iteration {step:8d}/ 100000 | lm loss: {5.0 / step:.6E} |"
    origin = Origin(workload_uid="job", pod_name="trainer-0", namespace="team")
    return LogLine(origin=origin, text=text, event_time=1_700_000_000.0 + step)


def scripted(number: int) -> LogLine:
    """A line of the job `scripted`, whose ranks start again every 40 lines, run out of memory, hang, and save."""
    rank, step = number % 4, (number - 1) % 40 + 1
    text = f"[2026-01-01 00:00:{number % 60:02d}] iteration {step:8d}/ 100000 | lm loss: {5.0 / number:.6E} |"
    if number % 40 == 0:
        text = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    elif number % 23 == 0:
        text = (
            f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE)"
        )
    elif number % 10 == 0:
        text = f"saving checkpoint at iteration {step:7d} to /checkpoints in torch_dist format"
    origin = Origin(workload_uid="scripted", pod_name=f"trainer-{rank}", namespace="team", rank=rank, world_size=4)
    return LogLine(origin=origin, text=text, event_time=1_700_000_000.0 + number)


class Fleet:
    """Three servers and three daemons as processes of their own, on one database."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.servers = NatsServers(folder / "nats").start()
        cluster = {
            "nats": self.servers.urls,
            "monitoring": self.servers.monitoring,
            "partitions": 6,
            "lease_seconds": LEASE_SECONDS,
        }
        config = json.dumps({"cluster": cluster, "sinks": {"store": {"type": "postgresql", "dsn": dsn}}})
        self.daemons = [RunningLens(folder / f"d{number}", config) for number in range(DAEMONS)]
        for daemon in self.daemons:
            daemon.start()

    def end(self) -> None:
        """Leave nothing running."""
        for daemon in self.daemons:
            daemon.end()
        self.servers.stop()


class Senders:
    """Threads that send records in turn to all daemons, and repeat what was not acknowledged."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._turn = itertools.count()
        self._over = threading.Event()
        self.rows: list[int] = []
        self.lines: list[int] = []
        self.scripted: list[int] = []
        self._threads = [
            threading.Thread(target=self._send_all, args=(self.rows, self._row)),
            threading.Thread(target=self._send_all, args=(self.lines, line)),
            threading.Thread(target=self._send_all, args=(self.scripted, scripted, 0.02)),
        ]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _row(self, step: int) -> Record:
        origin = Origin(workload_uid=f"rows-{step % JOBS}")
        return StepMetrics(
            origin=origin, data_source="wandb", run_id="r", row_step=step, sequence=step, values={"loss": float(step)}
        )

    def _send_all(self, acknowledged: list[int], make: Any, pause: float = 0.004) -> None:
        with httpx.Client(timeout=10) as client:
            for step in itertools.count(1):
                body = encode_envelope([make(step)])
                while not self._is_taken(client, body):
                    time.sleep(0.02)
                acknowledged.append(step)
                if self._over.wait(pause):
                    return

    def _is_taken(self, client: httpx.Client, body: bytes) -> bool:
        daemon = self._fleet.daemons[next(self._turn) % DAEMONS]
        headers = {"Content-Type": "application/msgpack"}
        try:
            return client.post(f"{daemon.url}/api/v1/records", content=body, headers=headers).status_code == 200
        except httpx.HTTPError:
            return False


def address_of(daemon: RunningLens) -> str:
    """The host and port on which a daemon listens, for its next start."""
    return daemon.url.partition("://")[2]


def kill_at_random(
    fleet: Fleet, seconds: float, rng: random.Random, postgres: int | None = None, *, keeps_addresses: bool = False
) -> list[str]:
    """Kill a server or a daemon and start it again, or stop a daemon for a while, and so on; returns what was done.

    `postgres` is the process of a PostgreSQL of which a part is killed, too, so that it starts anew.
    """
    ends, done = time.monotonic() + seconds, list[str]()
    while time.monotonic() < ends:
        number = rng.randrange(DAEMONS)
        fault = rng.choice(
            ["server", "daemon", "sleep", *(["all servers", "database"] if postgres is not None else [])]
        )
        done.append(fault)
        if fault == "server":
            fleet.servers.kill_one(number)
            time.sleep(rng.uniform(0.2, 1.0))
            fleet.servers.start_one(number)
            wait_for(fleet.servers.is_ready, 60, "JetStream has a leader")
        elif fault == "all servers":
            for one in range(DAEMONS):
                fleet.servers.kill_one(one)
            for one in range(DAEMONS):
                fleet.servers.start_one(one)
            wait_for(fleet.servers.is_ready, 60, "JetStream has a leader")
        elif fault == "database":
            _kill_connection(postgres, rng)
            time.sleep(rng.uniform(0.5, 2.0))
        elif fault == "sleep":  # longer than its lease: it wakes up as one that owns nothing and does not know it
            process = fleet.daemons[number].process
            assert process is not None
            process.send_signal(signal.SIGSTOP)
            time.sleep(2 * LEASE_SECONDS)
            process.send_signal(signal.SIGCONT)
        else:
            daemon = fleet.daemons[number]
            daemon.kill()
            time.sleep(rng.uniform(0.2, 1.0))
            daemon.start(address_of(daemon) if keeps_addresses else "127.0.0.1:0")
    return done


def _kill_connection(postgres: int | None, rng: random.Random) -> None:
    """Kill a process that serves one connection: PostgreSQL ends all others and recovers."""
    assert postgres is not None
    serving = [one for one in psutil.Process(postgres).children() if _serves_a_connection(one)]
    if serving:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile
            rng.choice(serving).kill()


def _serves_a_connection(process: psutil.Process) -> bool:
    try:
        return " ".join(process.cmdline()).startswith("postgres: lens ")
    except psutil.Error:  # it has just ended
        return False


def stored_rows(fleet: Fleet) -> list[int]:
    """The steps of the rows that the store has."""
    jobs = [fleet.daemons[0].points(f"rows-{job}", metrics="loss") for job in range(JOBS)]
    return sorted(point["iteration"] for points in jobs for point in points)


def stored_steps(fleet: Fleet) -> list[tuple[int, int]]:
    """The steps that were read in the lines, each with its attempt."""
    points = fleet.daemons[0].points("job", metrics="lm_loss")
    return sorted((point["iteration"], point["attempt"]) for point in points)


def difference(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    """Name what is missing and what is too much, each with a few examples; '' where both are equal."""
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    parts = [
        f"{some.total()} {kind}, such as {', '.join(map(str, list(some)[:5]))}"
        for kind, some in (("are missing", missing), ("are too many", extra))
        if some
    ]
    return "; ".join(parts)


def check_stored(fleet: Fleet, sent: Senders, seconds: float = 60.0) -> None:
    """Fail unless everything that was acknowledged is stored, and stored once, in one attempt."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if len(stored_rows(fleet)) >= len(sent.rows) and len(stored_steps(fleet)) >= len(sent.lines):
            break
        time.sleep(0.2)
    wrong = difference(stored_rows(fleet), sent.rows)
    assert not wrong, f"of {len(sent.rows)} acknowledged rows {wrong}"
    found = stored_steps(fleet)
    wrong = difference([step for step, _ in found], sent.lines)
    assert not wrong, f"of {len(sent.lines)} acknowledged lines {wrong}"
    attempts = {attempt for _, attempt in found}
    assert len(attempts) == 1, f"a job that goes on elsewhere is one attempt, and has {sorted(attempts)}"


def told_of(lens: RunningLens) -> tuple[list[Any], list[Any]]:
    """Points and events of the scripted job, as a daemon answers for them."""
    points = [(one["iteration"], one["attempt"], one["value"]) for one in lens.points("scripted", metrics="lm_loss")]
    found = lens.get("/workloads/scripted/events", limit="5000")["events"]
    events = [json.dumps({name: value for name, value in one.items() if name != "id"}, sort_keys=True) for one in found]
    return sorted(points), sorted(events)


def check_like_one(fleet: Fleet, sent: Senders, folder: Path, dsn: str) -> tuple[int, int]:
    """Fail unless points, attempts and events of the scripted job are those of one daemon that got the same.

    `dsn` is another database; returns how many points and events there are.
    """
    sinks = {"store": {"type": "postgresql", "dsn": dsn}}
    alone = RunningLens(folder / "alone", json.dumps({"sinks": sinks})).start()
    try:
        for first in range(0, len(sent.scripted), 200):
            body = encode_envelope([scripted(number) for number in sent.scripted[first : first + 200]])
            headers = {"Content-Type": "application/msgpack"}
            httpx.post(f"{alone.url}/api/v1/records", content=body, headers=headers, timeout=60).raise_for_status()
        alone.drained()
        wanted = told_of(alone)
    finally:
        alone.end()
    ends = time.monotonic() + 60
    while (found := told_of(fleet.daemons[0])) != wanted and time.monotonic() < ends:
        time.sleep(0.2)
    for kind, mine, theirs in zip(("points", "events"), found, wanted, strict=True):
        wrong = difference(mine, theirs)
        assert not wrong, f"of the {len(theirs)} {kind} of one daemon that got the same {wrong}"
    return len(wanted[0]), len(wanted[1])


def owned_partitions(fleet: Fleet, number: int) -> int:
    """The partitions that have an owner which lives, as one daemon knows it."""
    shared = fleet.daemons[number].get("/status", scope="daemon")["shared"]
    return sum(name.startswith("partition.") for name in shared["holders"])
