"""Whatever records come in whatever order: the ledger adds up, and says nothing impossible."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.goodput.answers import as_whole_answer, days_of
from lens_plugins.analyzers.goodput.facts import Facts
from lens_plugins.analyzers.goodput.ledger import books_of, close
from lens_plugins.analyzers.goodput.log_facts import LogFacts
from lens_plugins.analyzers.goodput.store_facts import facts_of

from lens_core import Event, Origin, Record, StepMetrics
from lens_core.testing import MemoryStore
from tests.generated import examples

BEGIN = 1_700_000_000.0
NODES = st.sampled_from(["", "n1", "n2"])
TIMES = st.floats(-100, 20_000) | st.integers(0, 300).map(float) | st.sampled_from([0.0, 1e7])
STEPS = st.integers(0, 60) | st.sampled_from([10**6, 2**53, 2**60])
NUMBERS = st.floats() | st.integers(-(2**40), 2**40) | st.text(max_size=5) | st.booleans() | st.none()
KINDS = st.sampled_from(
    [
        "training_started",
        "training_ended",
        "training_failed",
        "out_of_memory",
        "collective_timeout",
        "process_terminated",
        "checkpoint_saved",
        "checkpoint_loaded",
        "evaluation",
        "stalled",
        "resumed",
        "device_error",
    ]
)
DETAILS = st.dictionaries(
    st.sampled_from(
        ["duration_seconds", "xid", "signal", "path", "process", "error", "can_stop_job", "node", "reason"]
    ),
    NUMBERS | st.dictionaries(st.sampled_from(["started_at", "world_size", "visible_gpus", "restart_count"]), NUMBERS),
    max_size=4,
)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    found: list[Record] = []
    for _ in range(draw(st.integers(1, 40))):
        at = BEGIN + draw(TIMES)
        rank = draw(st.none() | st.integers(0, 2))
        attempt = draw(st.none() | st.integers(0, 3))
        origin = Origin(workload_uid="job", node=draw(NODES), rank=rank, world_size=draw(st.none() | st.integers(1, 8)))
        if draw(st.booleans()):
            names = st.sampled_from(["lm_loss", "data_loading_time_ms", "global_batch_size", "eval/loss"])
            found.append(
                StepMetrics(
                    origin=origin,
                    data_source=draw(st.sampled_from(["log", "wandb"])),
                    row_step=draw(STEPS),
                    values=draw(st.dictionaries(names, st.floats(), min_size=1)),
                    attempt=attempt,
                    session="" if attempt is not None else draw(st.sampled_from(["a", "b"])),
                    event_time=at,
                )
            )
        else:
            found.append(
                Event(
                    origin=origin,
                    type=draw(KINDS),
                    attempt=attempt,
                    iteration=draw(st.none() | STEPS),
                    event_time=at,
                    details=draw(DETAILS),
                )
            )
    return found


def check(facts: Facts) -> None:
    books = books_of(facts)
    ledger = close(books)
    assert all(math.isfinite(seconds) and seconds >= 0 for seconds in ledger.buckets.values()), ledger.buckets
    assert abs(sum(ledger.buckets.values()) - ledger.wall_seconds) < 1e-6 * max(1.0, len(ledger.buckets))
    assert ledger.goodput is None or 0 <= ledger.goodput <= 1
    for one in ledger.interruptions:
        assert one.seconds >= 0
        assert one.cause
        assert one.gpu_hours is None or one.gpu_hours >= 0
    answer = as_whole_answer(books)
    assert sum(sum(part) for part in answer["timeline"]["buckets"].values()) <= ledger.wall_seconds + 1e8
    for _, seconds, _ in days_of(books):
        assert all(math.isfinite(one) and one > -1e-6 for one in seconds.values())


@given(records())
@settings(max_examples=examples(300), deadline=None)
def test_any_records_of_a_log_make_a_ledger_that_adds_up(found: list[Record]) -> None:
    facts = LogFacts(BEGIN, "run")
    for record in found:
        facts.record_line(record.event_time or BEGIN)  # type: ignore[attr-defined]
        facts.read([record])
    check(facts.facts())


@given(records(), st.floats(0, 1e5))
@settings(max_examples=examples(150), deadline=None)
async def test_any_records_of_a_store_make_ledgers_that_add_up(found: list[Record], later: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = MemoryStore(Path(folder), found)
        for facts in await facts_of(store, "job", now=BEGIN + 20_000 + later):
            check(facts)
