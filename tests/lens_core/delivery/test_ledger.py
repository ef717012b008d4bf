"""Counting, rates, bounded reasons."""

from __future__ import annotations

from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.ledger import MAX_REASONS, Ledger, RateMeter


def test_both_ledgers_say_the_same() -> None:
    metrics = SelfMetrics()
    ledger = Ledger("api", metrics)
    ledger.count("received", 10)
    ledger.count("filtered", 2)
    ledger.reject("wrong type", 3)
    ledger.count("accepted", 5)
    assert ledger.entry_difference() == 0
    text = metrics.exposition().decode()
    assert 'lens_records_received_total{component="api"} 10.0' in text
    assert 'lens_records_rejected_total{component="api",reason="wrong type"} 3.0' in text


def test_a_sinks_ledger_adds_up_with_what_is_pending() -> None:
    ledger = Ledger("p/s", SelfMetrics())
    ledger.count("accepted", 10)
    ledger.count("recovered", 5)
    ledger.count("delivered", 6)
    ledger.drop("spool_full", 2)
    assert ledger.sink_difference(7) == 0
    assert ledger.sink_difference(6) == 1


def test_reasons_are_labels_and_so_their_number_is_bounded() -> None:
    ledger = Ledger("api", SelfMetrics())
    for number in range(1000):
        ledger.reject(f"reason {number}")
    assert len(ledger.rejected) == MAX_REASONS + 1
    assert ledger.rejected["other"] == 1000 - MAX_REASONS


def test_counters_are_there_from_the_start_and_unknown_reasons_are_not() -> None:
    metrics = SelfMetrics()
    ledger = Ledger("quiet", metrics)
    ledger.count("received", 0)
    ledger.drop("never", 0)
    text = metrics.exposition().decode()
    assert 'lens_records_received_total{component="quiet"} 0.0' in text
    assert "never" not in text


def test_the_rate_is_that_of_the_last_minute() -> None:
    now = 100.0
    meter = RateMeter(lambda: now)
    meter.count_records(600)
    now = 110.0
    assert meter.per_second() == 60.0
    now = 150.0
    meter.count_records(60)
    now = 159.0
    assert meter.per_second() == 660 / 59
    now = 161.0
    assert meter.per_second() == 1.0
    now = 300.0
    assert meter.per_second() == 0.0
