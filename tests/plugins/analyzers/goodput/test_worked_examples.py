"""The worked examples of the ledger, to the digit."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
from lens_plugins.analyzers.goodput.answers import as_whole_answer
from lens_plugins.analyzers.goodput.estimator import expected_ettr, mean_hours_to_failure
from lens_plugins.analyzers.goodput.facts import Attempt, Facts, Ledger, Row, Span
from lens_plugins.analyzers.goodput.ledger import books_of, ledger_of


def rows(first: int, last: int, begin: float, each: float, every: int = 1) -> list[Row]:
    return [Row(step, begin + index * each) for index, step in enumerate(range(first, last + 1, every))]


def paused(first: int, last: int, begin: float, each: float, after: dict[int, float]) -> list[Row]:
    """Rows, and pauses of so many seconds after some steps."""
    found, time = [], begin
    for step in range(first, last + 1):
        found.append(Row(step, time))
        time += each + after.get(step, 0.0)
    return found


def once(**attempt: object) -> Ledger:
    return ledger_of(Facts(attempts=[Attempt(start=0.0, **attempt)]))


def check(ledger: Ledger, wall: float, ratio: float, **buckets: float) -> None:
    assert ledger.wall_seconds == wall
    assert {name: value for name, value in ledger.buckets.items() if value} == buckets
    assert ledger.goodput is not None
    assert round(100 * ledger.goodput, 2) == ratio
    assert sum(round(value * 1e6) for value in ledger.buckets.values()) == round(wall * 1e6)


def test_example_1_a_start_and_steps() -> None:
    check(once(rows=rows(1, 100, 130, 10)), 1120, 89.29, productive=1000, startup=120)


def test_example_2_saves_that_block() -> None:
    series = paused(1, 100, 130, 10, {25: 30, 50: 30, 75: 30})
    at = {row.step: row.time for row in series}
    saves = [Span(at[step], at[step] + 30, step) for step in (25, 50, 75)]
    check(once(rows=series, saves=saves), 1210, 82.64, productive=1000, checkpoint=90, startup=120)


def test_example_3_saves_beside_training() -> None:
    series = paused(1, 100, 130, 10, {25: 1.5, 50: 1.5, 75: 1.5})
    at = {row.step: row.time for row in series}
    saves = [Span(at[step], at[step] + 30, step) for step in (25, 50, 75)]
    check(once(rows=series, saves=saves), 1124.5, 88.93, productive=1000, checkpoint=4.5, startup=120)


def test_example_4_a_failure_and_a_restart() -> None:
    first = Attempt(
        start=0, rows=rows(1, 180, 60, 10), end=1855, cause="training_failed", node="gpu-17", rank=3, gpus=8
    )
    second = Attempt(start=2155, resumed_from=100, rows=rows(101, 300, 2275, 10), gpus=8)
    ledger = ledger_of(Facts(attempts=[first, second]))
    check(ledger, 4265, 70.34, productive=3000, startup=160, lost=805, down=300)
    [interruption] = ledger.interruptions
    assert (interruption.cause, interruption.node, interruption.rank) == ("training_failed", "gpu-17", 3)
    assert interruption.seconds == 1215
    assert interruption.gpu_hours == pytest.approx(2.7)


def test_example_5_logged_every_ten_steps() -> None:
    first = Attempt(start=0, rows=rows(10, 200, 80, 50, 10), end=1042, cause="training_failed")
    again = [Row(200, 1150), *rows(210, 300, 1200, 50, 10)]
    ledger = ledger_of(Facts(attempts=[first, Attempt(start=1100, resumed_from=195, rows=again)]))
    check(ledger, 1650, 90.91, productive=1500, startup=55, lost=37, down=58)
    assert ledger.resolution == "every 10 steps"


def test_example_6_a_stall() -> None:
    series = [*rows(1, 300, 22, 2), *rows(301, 500, 1522, 2)]
    check(once(rows=series, stalls=[680.0]), 1920, 52.08, productive=1000, startup=20, stalled=900)


def test_example_7_a_hang_until_the_watchdog() -> None:
    first = Attempt(start=0, rows=rows(1, 100, 34, 4), end=2230, cause="collective_timeout")
    second = Attempt(start=2290, resumed_from=80, rows=rows(81, 200, 2350, 4))
    ledger = ledger_of(Facts(attempts=[first, second]))
    check(ledger, 2826, 28.31, productive=800, stalled=1796, lost=84, startup=86, down=60)
    assert ledger.interruptions[0].seconds == 84 + 1796 + 60 + 56


def test_example_8_evaluations_with_markers() -> None:
    series = paused(1, 150, 40, 10, {50: 100, 100: 100})
    at = {row.step: row.time for row in series}
    spans = [Span(at[step], at[step] + 100, step) for step in (50, 100)]
    marks = [Span(at[step] + 1, at[step] + 1, marker=True) for step in (50, 100)]
    for evaluations in (spans, marks):
        check(once(rows=series, evaluations=evaluations), 1730, 86.71, productive=1500, evaluation=200, startup=30)


def test_example_8b_evaluations_without_markers() -> None:
    series = paused(1, 150, 40, 10, {50: 100, 100: 100})
    check(once(rows=series), 1730, 86.71, productive=1500, stalled=200, startup=30)
    longer = once(rows=paused(1, 160, 40, 10, {50: 100, 100: 100, 150: 100}))
    assert longer.buckets["periodic"] == 300
    assert longer.buckets["stalled"] == 0
    assert any("checkpoints or evaluations" in note for note in longer.notes)


def test_example_9_half_the_gpus() -> None:
    first = Attempt(start=0, rows=rows(1, 100, 10, 10), gpus=16)
    second = Attempt(start=1000, resumed_from=100, rows=rows(101, 147, 1060, 20), gpus=8)
    ledger = ledger_of(Facts(attempts=[first, second]))
    check(ledger, 1980, 97.98, productive=1940, startup=40)
    assert ledger.gpu_seconds is not None
    assert ledger.gpu_seconds["productive"] == 23520
    assert sum(ledger.gpu_seconds.values()) == 23840
    assert ledger.gpu_goodput is not None
    assert round(100 * ledger.gpu_goodput, 2) == 98.66


def test_example_10_a_process_that_lives_on() -> None:
    first = Attempt(start=0, rows=rows(1, 51, 10, 10))
    second = Attempt(start=480, resumed_from=40, rows=rows(41, 90, 505, 10))
    for attempts in ([first, second], [second, first]):
        check(ledger_of(Facts(attempts=attempts)), 995, 90.45, productive=900, lost=80, startup=15)


def test_example_11_slower_from_the_middle_on() -> None:
    ledger = once(rows=[*rows(1, 300, 10, 10), *rows(301, 600, 3011.5, 11.5)])
    assert ledger.wall_seconds == 6450
    assert ledger.buckets["productive"] == pytest.approx(6000, abs=1)
    assert ledger.buckets["slow"] == pytest.approx(450, abs=1)
    assert ledger.goodput == pytest.approx(0.93, abs=0.0005)


def test_example_12_a_start_that_fails() -> None:
    attempts = [
        Attempt(start=0, rows=rows(1, 50, 105, 5), end=355, cause="training_failed"),
        Attempt(start=400, end=460, cause="out_of_memory"),
        Attempt(start=520, resumed_from=40, rows=rows(41, 100, 625, 5)),
    ]
    ledger = ledger_of(Facts(attempts=attempts))
    check(ledger, 920, 54.35, productive=500, startup=260, lost=55, down=105)
    assert [(found.cause, found.seconds) for found in ledger.interruptions] == [
        ("training_failed", 55 + 45 + 60),
        ("out_of_memory", 60 + 100),
    ]


def test_example_13_the_estimator() -> None:
    assert round(mean_hours_to_failure(2048, 6.5e-3), 3) == 1.803
    assert round(expected_ettr(2048, 6.5e-3, restart_minutes=5, interval_minutes=30, write_minutes=1), 3) == 0.789


def test_the_advice_on_checkpoints_is_the_estimators() -> None:
    """Example 4 with a save of 30 s each 20 steps: 3000 s of work between interruptions."""

    def saving(first: int, last: int, begin: float, **more: Any) -> Attempt:
        steps = paused(first, last, begin, 10, {step: 30.0 for step in range(first, last) if step % 20 == 10})
        saves = [Span(row.time, row.time + 30, row.step) for row in steps if row.step % 20 == 10]
        return Attempt(rows=steps, saves=saves, **more)

    first = saving(1, 180, 60, start=0.0, end=2125.0, cause="training_failed")
    books = books_of(Facts(attempts=[first, saving(101, 300, 2545, start=2425.0, resumed_from=100)]))
    answer = as_whole_answer(books)
    advice = answer["checkpoints"]
    assert answer["buckets"]["down"] == 300
    assert answer["seconds_between_interruptions"] == answer["buckets"]["productive"] == 3000
    assert (advice["saves"], advice["seconds_each"]) == (19, 30)
    best = sqrt(2 * 30 * 3000)
    assert advice["best_interval_seconds"] == pytest.approx(best)
    expected = (1 - (300 + 110 + best / 2) / 3000) / (1 + 30 / best)
    assert advice["expected_ettr"] == pytest.approx(expected, abs=1e-4)
