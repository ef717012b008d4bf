"""A job of thousands of ranks costs what its batches bring, not what it has already."""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql import identity
from lens_plugins.sinks.postgresql.blocks import PARTIAL_ROWS
from lens_plugins.sinks.postgresql.compacting import _worth_it, compact_stream

from lens_core import Detection, Evidence, Origin
from tests.plugins.sinks.postgresql.support import Spool, row

JOB = Origin(workload_uid="job")


def said(number: int, source: str = "wandb") -> Evidence:
    """The records of one rank of the job at its start."""
    return Evidence(origin=JOB, source=source, facts={"n": number}, run_id=f"run-{number}", event_time=float(number))


def opinion(confidence: float, at: float | None) -> Detection:
    """The detections of a detector for it."""
    return Detection(
        origin=JOB,
        workload_uid="job",
        source="wandb",
        framework="megatron",
        layer="base",
        confidence=confidence,
        method="import_detection",
        event_time=at,
    )


async def test_sessions_are_numbered_for_each_rank_by_itself(spool: Spool, store: Any) -> None:
    for session in ("a", "b", "a"):
        ranks = [Origin(workload_uid="job", rank=rank) for rank in range(3)]
        await spool.deliver(*(row(rank, origin=where, run_id="r", session=session) for rank, where in enumerate(ranks)))
    late = Origin(workload_uid="job", rank=3)
    await spool.deliver(row(0, origin=late, run_id="r", session="z"), row(0, origin=late, run_id="r", session="y"))
    detail = await store.workload("job")
    assert sorted((run.rank, run.attempt) for run in detail.runs) == [
        *[(rank, attempt) for rank in range(3) for attempt in (1, 2)],
        (3, 1),
        (3, 2),
    ]


async def test_of_what_all_ranks_say_in_one_batch_the_newest_stays(spool: Spool, store: Any) -> None:
    await spool.deliver(opinion(0.9, 5.0), *[opinion(0.1 + rank / 1000, 1.0) for rank in range(100)])
    (kept,) = await store.detections("job")
    assert (kept.confidence, kept.event_time) == (0.9, 5.0)
    await spool.deliver(opinion(0.3, None), opinion(0.2, 6.0))
    (kept,) = await store.detections("job")
    assert kept.confidence == 0.3


async def test_of_the_evidence_of_thousands_of_runs_the_newest_of_each_source_is_read(spool: Spool, store: Any) -> None:
    await spool.deliver(*map(said, range(250)), said(3, source="user"))
    found = await store.evidence("job")
    assert [item["facts"]["n"] for item in found if item["source"] == "wandb"] == list(range(249, 149, -1))
    assert [item["facts"]["n"] for item in found if item["source"] == "user"] == [3]


async def test_blocks_are_made_of_those_ranks_alone_that_have_enough_rows(spool: Spool, store: Any) -> None:
    await spool.deliver(*(row(step, origin=JOB) for step in range(PARTIAL_ROWS)))
    await spool.deliver(*(row(step, origin=Origin(workload_uid="other")) for step in range(5)))
    connection = await store.database.connect_when_ready()
    try:
        assert await _worth_it(connection, {1: True, 2: True}) == {1: True}
        assert await _worth_it(connection, {1: False, 2: False}) == {}
        assert await compact_stream(connection, 1, partial=True) == 1
        assert await _worth_it(connection, {1: True}) == {}
        await spool.deliver(row(2, origin=JOB, values={"loss": 7.0}, sequence=1 << 40))
        assert await _worth_it(connection, {1: False}) == {1: False}
    finally:
        await connection.close()


async def test_ids_that_leave_the_cache_are_found_again(
    spool: Spool, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_CACHED", 3)
    rng = random.Random(3)
    expected: dict[tuple[str, int], set[int]] = {}
    for step in range(12):
        chosen = [(rng.choice(("a", "b", "c", "d", "e")), rng.randrange(3)) for _ in range(4)]
        for job, rank in chosen:
            expected.setdefault((job, rank), set()).add(step)
        records = [row(step, origin=Origin(workload_uid=job, rank=rank)) for job, rank in dict.fromkeys(chosen)]
        await spool.deliver(*records)
    for job in sorted({job for job, _ in expected}):
        runs = {run.rank: run.rows for run in (await store.workload(job)).runs}
        assert runs == {rank: len(steps) for (name, rank), steps in expected.items() if name == job}


@given(batches=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), max_size=30))
def test_the_ids_used_last_stay_in_the_cache(batches: list[list[int]]) -> None:
    cache: OrderedDict[int, str] = OrderedDict()
    used: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "_CACHED", 5)
        for keys in batches:
            for key in keys:
                cache.setdefault(key, "id")
            identity._mark_used(cache, keys)
            identity._evict(cache)
            used = [key for key in used if key not in keys] + keys
            assert list(cache) == used[-5:]
