"""The ledger of any facts: it adds up, and neither order, repetition nor the clock's zero changes it."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.goodput.accounts import spread
from lens_plugins.analyzers.goodput.facts import BUCKETS, Attempt, DataWait, DataWaits, Facts, Ledger, Row, Rows, Span
from lens_plugins.analyzers.goodput.intervals import JITTER
from lens_plugins.analyzers.goodput.ledger import books_of, close, ledger_of
from lens_plugins.analyzers.goodput.log_file import ledger_of_log

from lens_core import LensError
from lens_core.config.loading import load_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines import LineEngine
from lens_core.plugin_host.host import PluginHost
from tests.generated import examples

SECONDS = st.floats(0, 2000, allow_nan=False).map(lambda value: round(value, 6))


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(SECONDS)
    return Span(start, start + draw(st.floats(0, 200)), draw(st.none() | st.integers(0, 120)), draw(st.booleans()))


@st.composite
def any_attempts(draw: st.DrawFn) -> Attempt:
    """An attempt whose facts need not agree with each other."""
    rows = draw(
        st.lists(st.builds(Row, st.integers(0, 120), SECONDS, st.none() | st.integers(0, 2)), max_size=30, unique=True)
    )
    return Attempt(
        rows=rows,
        start=draw(st.none() | SECONDS),
        end=draw(st.none() | SECONDS),
        resumed_from=draw(st.none() | st.integers(0, 120)),
        restore_seconds=draw(st.floats(0, 100)),
        cause=draw(st.sampled_from(["", "training_failed", "out_of_memory"])),
        ended_cleanly=draw(st.booleans()),
        gpus=draw(st.none() | st.integers(1, 16)),
        saves=draw(st.lists(spans(), max_size=3)),
        evaluations=draw(st.lists(spans(), max_size=3)),
        data=draw(st.lists(st.builds(DataWait, st.integers(0, 120), st.floats(0, 50)), max_size=5)),
        stalls=draw(st.lists(SECONDS, max_size=2)),
        configurations=sorted(draw(st.lists(st.tuples(st.integers(0, 120), st.sampled_from("ab")), max_size=4))),
    )


ANY_FACTS = st.builds(
    Facts,
    attempts=st.lists(any_attempts(), max_size=4),
    now=st.none() | st.floats(0, 4000),
    held=st.none() | st.lists(st.tuples(SECONDS, SECONDS), max_size=3),
    has_phases=st.booleans(),
)


@st.composite
def steady_runs(draw: st.DrawFn) -> list[Attempt]:
    """Attempts that follow each other, each resumed from a step of the one before."""
    found: list[Attempt] = []
    time, step = 0.0, 0
    for number in range(draw(st.integers(1, 4))):
        start, resumed = time, step
        time += draw(st.integers(5, 90))
        rows = []
        for _ in range(draw(st.integers(7, 80))):
            time += draw(st.sampled_from([10.0, 10.0, 10.0, 10.0, 10.0, 10.4, 11.5, 95.0]))
            step += 1
            rows.append(Row(step, time))
        end = time + draw(st.sampled_from([0.0, 3.0, 400.0]))
        found.append(Attempt(start=start, rows=rows, end=end, resumed_from=resumed, cause="training_failed", gpus=8))
        time = end + draw(st.integers(0, 500))
        step = draw(st.integers(max(0, step - 40), step))
        assert number < 5
    return found


def check_sum(ledger: Ledger) -> None:
    assert set(ledger.buckets) == set(BUCKETS)
    assert min(ledger.buckets.values()) >= 0
    assert sum(round(value * 1e6) for value in ledger.buckets.values()) == round(ledger.wall_seconds * 1e6)


@settings(max_examples=examples(80), deadline=None)
@given(ANY_FACTS)
def test_the_buckets_of_any_facts_add_up_to_the_wall_time(facts: Facts) -> None:
    ledger = ledger_of(facts)
    check_sum(ledger)
    assert ledger.goodput is None or 0 <= ledger.goodput <= 1
    assert all(found.seconds >= 0 for found in ledger.interruptions)
    if ledger.gpu_seconds is not None:
        assert min(ledger.gpu_seconds.values()) >= -1e-6


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 120), st.integers(1, 40)), min_size=1, max_size=6), st.integers(0, 90))
def test_batches_that_grow_make_nothing_slow(ramp: list[tuple[int, int]], startup: int) -> None:
    """Each batch size has its own pace, however many steps it is kept; each pair is steps and seconds per step."""
    rows, configurations, step, time = [], [], 0, float(startup)
    for number, (count, each) in enumerate(ramp):
        configurations.append((step + 1, f"batch {number}"))
        for _ in range(count):
            step, time = step + 1, time + each
            rows.append(Row(step, time))
    ledger = ledger_of(Facts(attempts=[Attempt(start=0.0, rows=rows, configurations=configurations)]))
    check_sum(ledger)
    spent = {name for name, seconds in ledger.buckets.items() if seconds}
    assert spent <= {"productive", "startup"}
    if min(count for count, _ in ramp) > 5:
        assert ledger.buckets["startup"] == startup


@settings(max_examples=examples(40), deadline=None)
@given(ANY_FACTS, st.randoms(use_true_random=False))
def test_rows_that_come_twice_and_in_any_order_change_nothing(facts: Facts, shuffled: random.Random) -> None:
    attempts = []
    for attempt in facts.attempts:
        rows = [*attempt.rows, *attempt.rows[:5]]
        shuffled.shuffle(rows)
        attempts.append(msgspec.structs.replace(attempt, rows=rows))
    assert ledger_of(msgspec.structs.replace(facts, attempts=attempts)) == ledger_of(facts)


@settings(max_examples=examples(40), deadline=None)
@given(ANY_FACTS)
def test_rows_as_columns_give_the_same_ledger(facts: Facts) -> None:
    attempts = []
    for attempt in facts.attempts:
        columns = [
            Rows(
                np.array([row.step for row in attempt.rows if row.rank == rank], dtype=np.int64),
                np.array([row.time for row in attempt.rows if row.rank == rank]),
                rank,
            )
            for rank in {row.rank for row in attempt.rows}
        ]
        waits = DataWaits(
            np.array([wait.step for wait in attempt.data], dtype=np.int64),
            np.array([wait.seconds for wait in attempt.data]),
        )
        attempts.append(msgspec.structs.replace(attempt, rows=(), columns=columns, data=(), waits=waits))
    assert ledger_of(msgspec.structs.replace(facts, attempts=attempts)) == ledger_of(facts)


def test_a_million_steps_with_pauses_of_every_kind_add_up() -> None:
    random_numbers = np.random.default_rng(0)
    count = 1_000_000
    times = 60.0 + np.cumsum(random_numbers.normal(1.0, 0.06, count) + 20.0 * (np.arange(count) % 1000 == 999))
    steps = np.arange(1, count + 1)
    saves = [Span(times[index], times[index] + 15, index + 1) for index in range(998, count - 1, 1000)]
    ledger = ledger_of(Facts(attempts=[Attempt(start=0.0, columns=[Rows(steps, times)], saves=saves)]))
    check_sum(ledger)
    assert ledger.buckets["checkpoint"] == pytest.approx(15 * len(saves), rel=0.01)
    assert ledger.buckets["periodic"] == pytest.approx(5 * len(saves), rel=0.05)


@settings(max_examples=examples(60), deadline=None)
@given(ANY_FACTS, st.integers(1, 12))
def test_the_parts_of_a_life_add_up_to_the_buckets(facts: Facts, count: int) -> None:
    books = books_of(facts)
    ledger = close(books)
    end = max((account.life.end + round(sum(account.gap.values())) for account in books.accounts), default=0)
    edges = np.linspace(0, end, count + 1).astype(np.int64)
    parts = spread(books.accounts, edges)
    for bucket, seconds in ledger.buckets.items():
        assert min(parts[bucket]) >= -1e-6
        assert float(parts[bucket].sum()) == pytest.approx(seconds, abs=2e-5)


@settings(max_examples=examples(30), deadline=None)
@given(steady_runs())
def test_the_order_of_attempts_changes_nothing(attempts: list[Attempt]) -> None:
    assert ledger_of(Facts(attempts=attempts[::-1])) == ledger_of(Facts(attempts=attempts))


@settings(max_examples=examples(30), deadline=None)
@given(steady_runs(), st.integers(-(10**6), 2 * 10**9))
def test_shifting_all_clocks_changes_nothing(attempts: list[Attempt], by: int) -> None:
    shifted = [
        msgspec.structs.replace(
            attempt,
            start=(attempt.start or 0.0) + by,
            end=(attempt.end or 0.0) + by,
            rows=[Row(row.step, row.time + by) for row in attempt.rows],
        )
        for attempt in attempts
    ]
    before, after = ledger_of(Facts(attempts=attempts)), ledger_of(Facts(attempts=shifted))
    assert after.wall_seconds == pytest.approx(before.wall_seconds, abs=2e-6)
    assert after.buckets == pytest.approx(before.buckets, abs=1e-4)


@settings(max_examples=examples(40), deadline=None)
@given(steady_runs())
def test_productive_time_is_no_more_than_the_surviving_steps_at_the_slowest_pace(attempts: list[Attempt]) -> None:
    """An interval within the jitter counts as it is, so the bound has the jitter's width."""
    ledger = ledger_of(Facts(attempts=attempts))
    check_sum(ledger)
    surviving = attempts[-1].rows[-1].step - (attempts[0].resumed_from or 0)
    assert ledger.buckets["productive"] <= surviving * 11.5 * (1 + JITTER) + 1e-6


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(60, 200), st.integers(2, 10), st.integers(20, 300))
def test_a_longer_logging_interval_moves_no_more_than_one_interval(count: int, every: int, startup: int) -> None:
    rows = [Row(step, startup + 10.0 * step) for step in range(1, count + 1)]
    fine = ledger_of(Facts(attempts=[Attempt(start=0, rows=rows, end=rows[-1].time)]))
    coarse_rows = [row for row in rows if row.step % every == 0]
    coarse = ledger_of(Facts(attempts=[Attempt(start=0, rows=coarse_rows, end=rows[-1].time)]))
    assert coarse.wall_seconds == fine.wall_seconds
    for name in BUCKETS:
        assert abs(coarse.buckets[name] - fine.buckets[name]) <= 10.0 * every + 1e-6, name


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(20, 200), st.data())
def test_splitting_an_attempt_at_a_checkpoint_without_a_gap_changes_nothing(count: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, count - 7))
    rows = [Row(step, 50 + 10.0 * step) for step in range(1, count + 1)]
    whole = ledger_of(Facts(attempts=[Attempt(start=0, rows=rows)]))
    at = rows[cut - 1].time
    first = Attempt(start=0, rows=rows[:cut], end=at)
    second = Attempt(start=at, rows=rows[cut:], resumed_from=cut)
    assert ledger_of(Facts(attempts=[first, second])).buckets == whole.buckets


LINES = [
    json.loads(line)["line"].encode()
    for line in (Path(__file__).parents[3] / "data" / "training_log_lines.jsonl").read_text().splitlines()
    if '"line":' in line
]
STEPS_OF_TIME = st.sampled_from([0.0, 0.1, 1.0, 1.0, 5.0, 30.0, 200.0, -3.0, -500.0, 86400.0])


@cache
def line_engine() -> LineEngine:
    """All detectors: seconds of work, which only the process that runs these tests has."""
    return LineEngine(make_detectors(load_config(None, PluginHost.load()).detectors))


def _has_steps(lines: list[bytes]) -> bool:
    """Whether there is surely a step among these lines: none is joined to another line, or repeated."""
    readings = [reading for line in lines for reading in line_engine().read_line(line.decode())]
    return any(reading.format and not reading.joins for reading in readings) and not any(
        reading.joins == "repeats" for reading in readings
    )


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LINES), STEPS_OF_TIME, st.booleans()), min_size=1, max_size=60))
def test_a_log_of_any_lines_at_any_times_adds_up_or_is_refused(lines: list[tuple[bytes, float, bool]]) -> None:
    time, times = 1.7e9, []
    for _, later, has_time in lines:
        time += later
        times.append(f"{time}\n" if has_time else "\n")
    try:
        ledger = ledger_of_log(lambda: [line for line, _, _ in lines], "train.log", times)
    except LensError:
        assert not any(has_time for _, _, has_time in lines) or not _has_steps([line for line, _, _ in lines])
    else:
        check_sum(ledger)
