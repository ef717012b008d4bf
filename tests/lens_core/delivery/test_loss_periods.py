"""A period of loss is logged twice: when it begins, and with its sum when it is over."""

from __future__ import annotations

import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lens_core.base.self_metrics import SelfMetrics
from lens_core.delivery.ledger import QUIET_SECONDS, SINK_LOSSES, Ledger, LossPeriods, end_quiet_periods


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Remembering(logging.Handler):
    """Keeps what is logged; caplog is one for all examples of a property."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record)


def test_one_warning_at_the_start_and_one_with_the_sum_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    periods = LossPeriods("default/far", clock)
    for _ in range(100):
        periods.record_loss("dropped", "spool_full", 5)
        clock.now += 1
        periods.end_quiet()
    assert [record.getMessage() for record in caplog.records] == ["default/far is losing records. reason=spool_full"]
    assert periods.last_at == 1099.0
    clock.now += QUIET_SECONDS
    periods.end_quiet()
    periods.end_quiet()
    assert [record.getMessage() for record in caplog.records][1:] == [
        "default/far lost 500 records. reason=spool_full seconds=99"
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 50), st.integers(0, 200)), max_size=20))
def test_the_sums_of_all_periods_are_what_was_lost(steps: list[tuple[str, int, float]]) -> None:
    handler = Remembering()
    said = handler.said
    logger = logging.getLogger("lens.loss")
    logger.addHandler(handler)
    clock = Clock()
    periods = LossPeriods("default/far", clock)
    try:
        for reason, records, seconds in steps:
            periods.record_loss("dropped", reason, records)
            clock.now += seconds
            periods.end_quiet()
        periods.end_quiet(0.0)
    finally:
        logger.removeHandler(handler)
    ends = [record.args for record in said if "lost" in record.msg]
    sums = sum(arguments[1] for arguments in ends if isinstance(arguments, tuple))  # type: ignore[misc]
    assert sums == sum(records for _, records, _ in steps)
    assert len(said) == 2 * len(ends)


def test_a_ledger_says_its_losses_and_counts_from_zero(caplog: pytest.LogCaptureFixture) -> None:
    metrics = SelfMetrics()
    ledger = Ledger.for_component("default/far", metrics, drops=SINK_LOSSES)
    assert (
        'lens_records_dropped_total{component="default/far",reason="spool_full"} 0.0' in metrics.exposition().decode()
    )
    ledger.drop("spool_full", 3)
    ledger.count("discarded", 2)
    assert ledger.ledger_status().last_loss_at is not None
    end_quiet_periods(metrics.ledgers, quiet_seconds=0.0)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 4
    assert any("lost 3 records" in message for message in messages)
    assert any("discarded 2 dead letters" in message for message in messages)
