"""The sums of all workloads: groups add up to the whole, and a file that is damaged is begun anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.goodput.facts import BUCKETS, Interruption
from lens_plugins.analyzers.goodput.fleet import GROUPS, FleetBooks, Job
from lens_plugins.analyzers.goodput.wording import fleet_report

from tests.generated import examples


def seconds(productive: float, lost: float = 0.0) -> dict[str, float]:
    return {**dict.fromkeys(BUCKETS, 0.0), "productive": productive, "lost": lost}


def job(uid: str, framework: str = "megatron") -> Job:
    return Job(uid=uid, name=f"name-{framework}", namespace="team", framework=framework)


def interruption(cause: str, node: str | None, cost: float, time: float) -> Interruption:
    return Interruption(cause=cause, node=node, rank=None, seconds=cost, gpu_hours=cost / 450, time=time)


def test_a_fleet_without_ledgers_says_when_there_will_be_one(tmp_path: Path) -> None:
    books = FleetBooks(tmp_path / "fleet.sqlite3")
    assert "a minute or two after its first" in fleet_report(books.answer(0, "cause"))
    books.book(job("a"), [(100, seconds(50), None)], [])
    assert "of 1 job made progress" in fleet_report(books.answer(0, "cause"))
    books.close()


def test_sums_by_cause_node_and_group(tmp_path: Path) -> None:
    books = FleetBooks(tmp_path / "fleet.sqlite3")
    books.book(job("a"), [(100, seconds(800, 200), seconds(6400, 1600))], [interruption("oom", "n1", 90, 100 * 86400)])
    books.book(job("b", "jax"), [(99, seconds(50), None), (100, seconds(100), None)], [])
    books.book(job("c"), [(100, seconds(100), seconds(800))], [interruption("oom", "n2", 30, 100 * 86400 + 5)])
    found = books.answer(100, "cause")
    assert (found["jobs"], found["wall_seconds"], found["goodput"]) == (3, 1200, round(1000 / 1200, 4))
    assert found["gpu_seconds"] is None  # nobody knows the GPUs of b
    assert found["groups"] == [
        {"name": "oom", "interruptions": 2, "jobs": 2, "seconds": 120, "gpu_hours": pytest.approx(120 / 450)}
    ]
    assert [node["name"] for node in books.answer(100, "node")["groups"]] == ["n1", "n2"]
    by = books.answer(100, "framework")["groups"]
    assert [(group["name"], group["jobs"], group["wall_seconds"]) for group in by] == [
        ("megatron", 2, 1100),
        ("jax", 1, 100),
    ]
    assert by[0]["gpu_seconds"]["productive"] == 7200
    only = books.answer(0, "workload", ["b"])["groups"]
    assert [(group["name"], group["wall_seconds"]) for group in only] == [("b", 150)]
    books.book(job("a"), [(100, seconds(1), None)], [])  # what was known of it is replaced
    assert books.answer(100, "cause")["wall_seconds"] == 201
    books.forget("a")
    assert books.answer(100, "cause")["jobs"] == 2
    books.close()


def test_nothing_is_an_answer(tmp_path: Path) -> None:
    books = FleetBooks(tmp_path / "fleet.sqlite3")
    for by in ("cause", "node", *GROUPS):
        found = books.answer(0, by)
        assert found["groups"] == []
        assert found.get("goodput") is None
    books.close()


def test_jobs_at_risk_are_those_that_still_run(tmp_path: Path) -> None:
    books = FleetBooks(tmp_path / "fleet.sqlite3")
    today = int(time.time() // 86400)
    for uid, at_risk, day in (("a", 10.0, today), ("b", 900.0, today), ("c", 5000.0, today - 9), ("d", None, today)):
        books.book(msgspec.structs.replace(job(uid), at_risk_gpu_seconds=at_risk), [(day, seconds(1), None)], [])
    found = books.answer(0, "cause")["at_risk"]
    books.close()
    assert [(one["uid"], one["gpu_seconds"]) for one in found] == [("b", 900.0), ("a", 10.0)]


def test_what_waits_is_remembered_over_a_restart(tmp_path: Path) -> None:
    books = FleetBooks(tmp_path / "fleet.sqlite3")
    books.note_changes(["b", "a", "a"])
    books.close()
    books = FleetBooks(tmp_path / "fleet.sqlite3")
    assert books.pending() == ["a", "b"]
    books.book(job("b"), [], [])
    assert books.pending() == ["a"]
    books.close()


@pytest.mark.parametrize("damage", [b"not a database at all, but long enough to be looked at" * 50, b""])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "fleet.sqlite3"
    path.write_bytes(damage)
    books = FleetBooks(path)
    books.book(job("a"), [(1, seconds(1), None)], [])
    assert books.answer(0, "cause")["jobs"] == 1
    books.close()


AMOUNTS = st.floats(0, 1e6).map(lambda value: round(value, 3))
JOBS = st.lists(
    st.tuples(st.sampled_from(["x", "y", ""]), st.lists(st.tuples(AMOUNTS, AMOUNTS, st.booleans()), max_size=4)),
    max_size=6,
)


@settings(max_examples=examples(25), deadline=None)
@given(JOBS)
def test_groups_add_up_to_the_whole(tmp_path_factory: pytest.TempPathFactory, jobs: list[Any]) -> None:
    books = FleetBooks(tmp_path_factory.mktemp("fleet") / "fleet.sqlite3")
    wall = 0.0
    for number, (framework, days) in enumerate(jobs):
        lived = [
            (day, seconds(one, other), seconds(8 * one, 8 * other) if known else None)
            for day, (one, other, known) in enumerate(days)
        ]
        wall += sum(one + other for one, other, _ in days)
        books.book(job(f"job-{number}", framework), lived, [])
    whole = books.answer(0, "cause")
    groups = books.answer(0, "framework")
    books.close()
    assert whole["wall_seconds"] == pytest.approx(wall, abs=1e-3)
    assert sum(group["wall_seconds"] for group in groups["groups"]) == pytest.approx(wall, abs=1e-3)
    assert sum(group["jobs"] for group in groups["groups"]) == whole["jobs"]
    assert (whole["gpu_seconds"] is None) == any(
        group["gpu_seconds"] is None for group in groups["groups"]
    ) or not whole["jobs"]


class Held(list[Any]):
    """Days that are read once somebody lets them."""

    def __init__(self, days: list[Any]) -> None:
        super().__init__(days)
        self.reached, self.released = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[Any]:
        self.reached.set()
        self.released.wait(60)
        return super().__iter__()


def test_a_file_is_closed_behind_the_call_that_uses_it(tmp_path: Path) -> None:
    """A call goes on in its thread when its task is cancelled by a reload; it was a crash to close the file then."""
    fleet = FleetBooks(tmp_path / "fleet.sqlite3")
    job = Job(uid="a", name="a", namespace="", framework="")
    days = Held([(1, dict.fromkeys(BUCKETS, 1.0), None)])
    booking = threading.Thread(target=fleet.book, args=(job, days, ()))
    booking.start()
    days.reached.wait(60)
    closing = threading.Thread(target=fleet.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    days.released.set()
    for thread in (booking, closing):
        thread.join(60)
    again = FleetBooks(tmp_path / "fleet.sqlite3")
    assert again.answer(0, "name")["jobs"] == 1
    again.close()
