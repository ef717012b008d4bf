"""Facts as they come: each case of the rules for odd input."""

from __future__ import annotations

import pytest
from lens_plugins.analyzers.goodput.facts import Attempt, DataWait, Facts, Ledger, Row, Span
from lens_plugins.analyzers.goodput.ledger import ledger_of


def rows(first: int, last: int, begin: float, each: float, rank: int | None = None) -> list[Row]:
    return [Row(step, begin + index * each, rank) for index, step in enumerate(range(first, last + 1))]


def of(*attempts: Attempt) -> Ledger:
    return ledger_of(Facts(attempts=attempts))


def test_steps_that_go_back_in_one_process_begin_a_virtual_attempt() -> None:
    ledger = of(Attempt(start=0, rows=[*rows(1, 60, 10, 10), *rows(41, 100, 650, 10)]))
    assert ledger.wall_seconds == 1240
    assert (ledger.buckets["productive"], ledger.buckets["lost"], ledger.buckets["startup"]) == (1000, 200, 40)
    [rollback] = ledger.interruptions
    assert (rollback.cause, rollback.seconds) == ("rollback", 240)


def test_a_late_write_of_an_earlier_step_is_no_restart() -> None:
    series = rows(1, 50, 10, 10)
    series = [*series, Row(48, 503.0), *rows(51, 100, 510, 10)]
    assert of(Attempt(start=0, rows=series)).buckets["lost"] == 0


def test_a_step_written_again_later_marks_an_evaluation() -> None:
    series = [*rows(1, 50, 10, 10), Row(50, 590.0), *rows(51, 100, 610, 10)]
    ledger = of(Attempt(start=0, rows=series))
    assert (ledger.buckets["evaluation"], ledger.buckets["productive"]) == (100, 1000)


def test_events_of_another_clock_are_moved_to_the_row_of_their_step() -> None:
    series = [*rows(1, 50, 10, 10), *rows(51, 100, 540, 10)]
    for skew in (-400.0, 0.0, 400.0):
        save = Span(500 + skew, 530 + skew, 50)
        ledger = of(Attempt(start=0, rows=series, saves=[save]))
        assert (ledger.buckets["checkpoint"], ledger.buckets["slow"]) == (30, 0)


def test_an_end_or_a_start_of_another_clock_never_cuts_rows() -> None:
    ledger = of(Attempt(start=15, rows=rows(1, 50, 10, 10), end=490, cause="training_failed"))
    assert ledger.wall_seconds == 490
    assert ledger.buckets["productive"] == 490


def test_one_rank_is_enough_and_ranks_are_never_mixed() -> None:
    alone = of(Attempt(start=0, rows=rows(1, 100, 30, 10)))
    skewed = [*rows(1, 100, 30, 10, rank=0), *rows(1, 100, 33.7, 10, rank=1)]
    assert of(Attempt(start=0, rows=skewed)).buckets == alone.buckets
    torn = [*rows(1, 20, 30, 10, rank=0), *rows(1, 100, 30, 10, rank=5)]
    assert of(Attempt(start=0, rows=torn)).buckets == alone.buckets


def test_gpus_that_nobody_counted_are_unknown() -> None:
    ledger = of(
        Attempt(start=0, rows=rows(1, 100, 30, 10), end=1030, cause="out_of_memory", gpus=8),
        Attempt(start=1100, rows=rows(101, 200, 1200, 10)),
    )
    assert ledger.gpu_seconds is None
    assert [found.gpu_hours for found in ledger.interruptions] == [None]
    assert any(note.startswith("gpus: unknown") for note in ledger.notes)


def test_without_checkpoint_events_lost_work_is_exact() -> None:
    ledger = of(
        Attempt(start=0, rows=rows(1, 100, 10, 10), end=1000, cause="process_terminated"),
        Attempt(start=1000, rows=rows(71, 100, 1010, 10)),
    )
    assert (ledger.buckets["lost"], ledger.buckets["productive"]) == (300, 1000)


def test_reinforcement_learning_has_no_slow_time() -> None:
    series, time = [], 0.0
    for step in range(1, 101):
        time += 10 + 15 * (step % 3 == 0) + 4 * (step % 2)
        series.append(Row(step, time))
    ledger = ledger_of(Facts(attempts=[Attempt(start=0, rows=series)], has_phases=True))
    assert ledger.buckets["slow"] == 0
    assert any("reinforcement" in note for note in ledger.notes)


def test_waiting_for_data_beyond_the_usual_is_data() -> None:
    series = [*rows(1, 50, 10, 10), *rows(51, 100, 550, 10)]
    waits = [DataWait(step, 1.0 if step != 51 else 36.0) for step in range(1, 101)]
    ledger = of(Attempt(start=0, rows=series, data=waits))
    assert (ledger.buckets["data"], ledger.buckets["slow"]) == (35, 5)


def test_loading_a_checkpoint_is_restore() -> None:
    ledger = of(Attempt(start=0, rows=rows(101, 200, 130, 10), resumed_from=100, restore_seconds=45))
    assert (ledger.buckets["restore"], ledger.buckets["startup"]) == (45, 75)


def test_the_gap_is_queued_where_nothing_was_held_and_nothing_behind_a_clean_end() -> None:
    first = Attempt(start=0, rows=rows(1, 100, 10, 10), end=1000, cause="process_terminated")
    second = Attempt(start=1600, rows=rows(101, 200, 1610, 10))
    held = ledger_of(Facts(attempts=[first, second], held=[(0, 1100), (1500, 9999)]))
    assert (held.buckets["down"], held.buckets["queued"]) == (200, 400)
    assert held.goodput == pytest.approx(2000 / 2200)
    assert held.ettr == pytest.approx(2000 / 2600)
    clean = of(Attempt(start=0, rows=first.rows, end=1000, ended_cleanly=True), second)
    assert (clean.wall_seconds, clean.buckets["down"], clean.interruptions) == (2000, 0, [])


def test_a_running_job_has_an_open_interval_until_it_is_a_stall() -> None:
    attempt = Attempt(start=0, rows=rows(1, 100, 10, 10), saves=[Span(800, 800, 80)])
    fresh = ledger_of(Facts(attempts=[attempt], now=1012))
    assert (fresh.wall_seconds, fresh.open_seconds, fresh.at_risk_seconds) == (1000, 12, 200)
    silent = ledger_of(Facts(attempts=[attempt], now=1600))
    assert (silent.buckets["stalled"], silent.buckets["lost"], silent.open_seconds) == (590, 10, 0)


def test_a_job_that_failed_for_good_lost_what_is_behind_its_last_checkpoint() -> None:
    facts = Attempt(start=0, rows=rows(1, 100, 10, 10), end=1000, cause="training_failed", saves=[Span(800, 800, 80)])
    ledger = of(facts)
    assert (ledger.buckets["productive"], ledger.buckets["lost"]) == (800, 200)
    assert ledger.interruptions[0].seconds == 200


def test_a_batch_size_that_grows_in_one_process_has_a_pace_of_its_own_and_slow_steps_in_it_are_found() -> None:
    """Example: 100 steps of 10 s, 100 of 20 s with twice the batch, and 100 of the same that take 26 s."""
    steps = [*rows(1, 100, 10, 10), *rows(101, 200, 1020, 20), *rows(201, 300, 3026, 26)]
    ledger = of(Attempt(start=0, rows=steps, configurations=[(1, "512"), (101, "1024")]))
    assert ledger.buckets["productive"] == pytest.approx(1000 + 2000 + 2000, abs=15)
    assert ledger.buckets["slow"] == pytest.approx(600, abs=15)
    assert ledger.buckets["startup"] == 0
    assert ledger.best_seconds == 20
    unsaid = of(Attempt(start=0, rows=steps))
    assert unsaid.buckets["slow"] > 2000


def test_a_few_rows_have_no_resolution() -> None:
    ledger = of(Attempt(start=0, rows=rows(1, 4, 50, 10)))
    assert ledger.resolution == "none"
    assert (ledger.buckets["productive"], ledger.buckets["startup"]) == (30, 50)


def test_nothing_is_an_empty_ledger() -> None:
    for ledger in (of(), of(Attempt())):
        assert (ledger.wall_seconds, ledger.goodput, sum(ledger.buckets.values())) == (0, None, 0)


@pytest.mark.parametrize("each", [0.13, 0.3, 0.7, 1.0, 1.5, 2.4, 3.7, 6.2, 9.6, 14.3])
def test_a_clock_of_whole_seconds_makes_nothing_slow(each: float) -> None:
    series = [Row(step, float(int(30 + step * each))) for step in range(1, 1001)]
    ledger = of(Attempt(start=0, rows=series))
    assert ledger.buckets["slow"] + ledger.buckets["stalled"] + ledger.buckets["periodic"] < 25
    assert ledger.buckets["productive"] == pytest.approx(1000 * each, rel=0.03)
    stalled = [Row(row.step, row.time + 600 * (row.step > 500)) for row in series]
    assert of(Attempt(start=0, rows=stalled)).buckets["stalled"] == pytest.approx(600, abs=5)


def test_sums_of_an_epoch_are_no_restart() -> None:
    series = [*rows(1, 100, 10, 10), Row(1, 1001), Row(1, 1002), *rows(101, 200, 1010, 10), Row(2, 2001), Row(2, 2002)]
    ledger = of(Attempt(start=0, rows=series))
    assert (ledger.buckets["lost"], ledger.buckets["productive"], ledger.interruptions) == (0, 2000, [])
