"""The sums of all workloads by day, in a file of the analyzer's own: what fleet questions are answered from.

All of it can be made again from the store; a file that cannot be read is begun anew.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from .facts import BUCKETS, Interruption

GROUPS = ("framework", "namespace", "name", "workload")
INTERRUPTION_GROUPS = ("cause", "node")
_SECONDS = [f"{bucket}_s" for bucket in BUCKETS]
_GPU_SECONDS = [f"{bucket}_g" for bucket in BUCKETS]
_COLUMNS = [*_SECONDS, *_GPU_SECONDS]
_SCHEMA = f"""
create table if not exists job (
    uid text primary key, name text not null, namespace text not null, framework text not null, at_risk real
) without rowid;
create table if not exists day (
    day integer not null, uid text not null, {", ".join(f"{name} real" for name in _COLUMNS)}, primary key (uid, day)
) without rowid;
create table if not exists interruption (
    uid text not null, time real not null, cause text not null, node text, rank integer, seconds real not null,
    gpu_hours real
);
create index if not exists interruption_uid on interruption (uid);
create table if not exists pending (uid text primary key) without rowid;
"""
_WORST_NODES = 20
_MOST_AT_RISK = 20

Days = Sequence[tuple[int, dict[str, float], dict[str, float] | None]]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The names under which a workload is in groups."""

    uid: str
    name: str
    namespace: str
    framework: str
    at_risk_gpu_seconds: float | None = None


class FleetBooks:
    """The file; its calls block and belong into threads. Each has its turn, and so has `close`.

    A call goes on in its thread when whoever awaited it is cancelled, and a connection that is closed under it would
    end the process.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._turn = threading.Lock()
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")
            connection.executescript(_SCHEMA)
        except sqlite3.DatabaseError:
            connection.close()
            for ending in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
            connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            connection.executescript(_SCHEMA)
        return connection

    def close(self) -> None:
        """Close the file, after the call that has its turn."""
        with self._turn:
            self._connection.close()

    def note_changes(self, uids: Iterable[str]) -> None:
        """Remember workloads that have to be looked at; one that waits already keeps its turn."""
        with self._turn:
            self._connection.execute("begin")
            self._connection.executemany("insert or ignore into pending values (?)", [(uid,) for uid in uids])
            self._connection.execute("commit")

    def pending(self) -> list[str]:
        """The workloads that have to be looked at."""
        with self._turn:
            return [uid for (uid,) in self._connection.execute("select uid from pending order by uid")]

    def forget(self, uid: str) -> None:
        """Remove a workload that is gone."""
        with self._turn:
            for table in ("job", "day", "interruption", "pending"):
                self._connection.execute(f"delete from {table} where uid = ?", (uid,))

    def book(self, job: Job, days: Days, interruptions: Sequence[Interruption]) -> None:
        """Replace what is known of a workload."""
        with self._turn:
            self._replace_job(job, days, interruptions)

    def _replace_job(self, job: Job, days: Days, interruptions: Sequence[Interruption]) -> None:
        marks = ", ".join("?" * (2 + len(_COLUMNS)))
        run = self._connection.execute
        run("begin")
        try:
            run("delete from day where uid = ?", (job.uid,))
            run("delete from interruption where uid = ?", (job.uid,))
            run("delete from pending where uid = ?", (job.uid,))
            values = (job.uid, job.name, job.namespace, job.framework, job.at_risk_gpu_seconds)
            run("insert or replace into job values (?, ?, ?, ?, ?)", values)
            self._connection.executemany(
                f"insert into day values ({marks})",
                [(day, job.uid, *_row(seconds), *_row(gpu)) for day, seconds, gpu in days],
            )
            self._connection.executemany(
                "insert into interruption values (?, ?, ?, ?, ?, ?, ?)",
                [
                    (job.uid, one.time, one.cause, one.node, one.rank, one.seconds, one.gpu_hours)
                    for one in interruptions
                ],
            )
        except BaseException:
            run("rollback")
            raise
        run("commit")

    def answer(self, since_day: int, by: str, uids: Sequence[str] = ()) -> dict[str, Any]:
        """The sums since the beginning of a day, of all and of each group; `uids` are for groups by workload."""
        with self._turn:
            return self._of_workloads(since_day, uids) if by == "workload" else self._of_groups(since_day, by)

    def _of_groups(self, since_day: int, by: str) -> dict[str, Any]:
        """The sums of all and of each group."""
        groups = self._sums(f"job.{by}" if by in GROUPS else "''", since_day)
        whole = _whole(groups)
        answer: dict[str, Any] = {"since": since_day * 86_400_000, "by": by, **whole}
        del answer["name"]
        if by in GROUPS:
            answer["groups"] = sorted(groups, key=lambda group: -group["wall_seconds"])
        else:
            answer["groups"] = self._interruptions(by, since_day)
        answer["interruptions"] = self._interruptions("cause", since_day)
        answer["at_risk"] = self._at_risk()
        answer["nodes"] = self._interruptions("node", since_day)[:_WORST_NODES]
        return answer

    def _at_risk(self) -> list[dict[str, Any]]:
        """The running jobs that would lose most by a failure now, those of known GPUs and checkpoints."""
        found = self._connection.execute(
            "select uid, name, at_risk from job where at_risk > 0"
            " and exists (select 1 from day where day.uid = job.uid and day >= ?) order by at_risk desc, uid limit ?",
            (int(time.time() // 86400) - 1, _MOST_AT_RISK),
        )
        return [{"uid": uid, "name": name, "gpu_seconds": at_risk} for uid, name, at_risk in found]

    def _of_workloads(self, since_day: int, uids: Sequence[str]) -> dict[str, Any]:
        """The sums of each of these workloads."""
        groups = self._sums("day.uid", since_day, uids)
        return {"since": since_day * 86_400_000, "by": "workload", "groups": groups}

    def _sums(self, group: str, since_day: int, uids: Sequence[str] = ()) -> list[dict[str, Any]]:
        # Each workload's days lie together, so that its sums need no sorting. A group's GPU-seconds are known only if
        # those of all its workloads are.
        own = ", ".join(f"total({name}) as {name}" for name in _COLUMNS)
        sums = ", ".join(f"total({name})" for name in _SECONDS)
        gpu = ", ".join(f"case when min(known) then total({name}) end" for name in _GPU_SECONDS)
        join = "join job on job.uid = day.uid" if group.startswith("job.") else ""
        only = f"and uid in ({', '.join('?' * len(uids))})" if uids else ""
        found = self._connection.execute(
            f"select {group}, count(*), {sums}, {gpu} from (select uid, min(productive_g is not null) as known, {own}"
            f" from day where day >= ? {only} group by uid) day {join} group by 1",
            (since_day, *uids),
        )
        return [_sums_of(name, jobs, columns) for name, jobs, *columns in found]

    def _interruptions(self, by: str, since_day: int) -> list[dict[str, Any]]:
        found = self._connection.execute(
            f"select coalesce({by}, ''), count(*), count(distinct uid), total(seconds),"
            " case when count(gpu_hours) = count(*) then total(gpu_hours) end"
            f" from interruption where time >= ? group by 1 order by 4 desc",
            (since_day * 86400,),
        )
        return [
            {"name": name, "interruptions": count, "jobs": jobs, "seconds": seconds, "gpu_hours": hours}
            for name, count, jobs, seconds, hours in found
        ]


def _whole(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of all groups."""
    columns: list[float | None] = [sum(group["buckets"][bucket] for group in groups) for bucket in BUCKETS]
    gpu = [group["gpu_seconds"] for group in groups]
    columns += [sum(one[bucket] for one in gpu) if gpu and None not in gpu else None for bucket in BUCKETS]
    return _sums_of("", sum(group["jobs"] for group in groups), columns)


def _row(amounts: dict[str, float] | None) -> list[float | None]:
    return [None if amounts is None else amounts[bucket] for bucket in BUCKETS]


def _sums_of(name: str, jobs: int, columns: Sequence[float | None]) -> dict[str, Any]:
    seconds = {bucket: value or 0.0 for bucket, value in zip(BUCKETS, columns, strict=False)}
    gpu = dict(zip(BUCKETS, columns[len(BUCKETS) :], strict=True))
    wall = sum(seconds.values())
    busy = wall - seconds["queued"]
    return {
        "name": name,
        "jobs": jobs,
        "wall_seconds": wall,
        "goodput": round(seconds["productive"] / busy, 4) if busy > 0 else None,
        "buckets": seconds,
        "gpu_seconds": None if None in gpu.values() else gpu,
    }
