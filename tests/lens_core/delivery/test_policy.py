"""The rules of sending, of retries, of bisection, and of valid answers."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import BatchLimits, Delivered, Poisoned, Rejected, Retry
from lens_core.delivery.sending.policy import (
    MAX_RETRY_AFTER_SECONDS,
    DeliverySettings,
    Part,
    asked_delay,
    halves,
    new_backoff,
    seconds_until_ready,
    sensible,
)
from lens_core.delivery.spool.sink_state import Pending

SETTINGS = DeliverySettings(retry_base_seconds=1.0, retry_cap_seconds=10.0)
LIMITS = BatchLimits(max_records=100, max_bytes=1000, max_wait_seconds=2.0)


def test_delays_double_up_to_the_cap() -> None:
    backoff = new_backoff(SETTINGS, lambda: 1.0)
    assert [backoff.next_delay() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    backoff.reset()
    assert backoff.next_delay() == 1


@given(rng=st.floats(0, 1), failures=st.integers(0, 10_000))
def test_jitter_is_full_and_bounded_however_often_it_failed(rng: float, failures: int) -> None:
    backoff = new_backoff(SETTINGS, lambda: rng)
    backoff.failures = failures
    assert 0 <= backoff.next_delay() <= 10.0


@given(asked=st.floats(0, 100), rng=st.floats(0, 1))
def test_what_the_sink_asked_for_is_the_least(asked: float, rng: float) -> None:
    assert asked <= new_backoff(SETTINGS, lambda: rng).next_delay(asked) <= asked + max(1.0, min(asked, 10.0))


def test_those_that_are_told_the_same_come_back_over_as_much_time_again() -> None:
    delays = [new_backoff(SETTINGS, Random(seed).random).next_delay(5.0) for seed in range(1000)]
    assert min(delays) < 5.2
    assert max(delays) > 9.8


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [(2, 2.0), (0, 0.0), (-1, None), (math.nan, None), (math.inf, None), ("5", None), (True, None), (None, None)],
)
def test_a_retry_after_that_makes_no_sense_is_ignored(given_value: Any, expected: float | None) -> None:
    assert asked_delay(given_value) == expected


def test_a_retry_after_of_days_is_cut() -> None:
    assert asked_delay(1e9) == MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize(
    ("pending", "flush", "expected"),
    [
        (Pending(0, 0, None), False, None),
        (Pending(0, 0, None), True, None),
        (Pending(1, 10, 1000.0), False, 2.0),
        (Pending(1, 10, 999.0), False, 1.0),
        (Pending(1, 10, 990.0), False, 0.0),
        (Pending(1, 10, 1000.0), True, 0.0),
        (Pending(100, 10, 1000.0), False, 0.0),
        (Pending(1, 1000, 1000.0), False, 0.0),
        (Pending(1, 10, 5000.0), False, 2.0),
        (Pending(1, 10, None), False, 0.0),
    ],
)
def test_readiness_by_records_bytes_and_age(pending: Pending, flush: bool, expected: float | None) -> None:
    assert seconds_until_ready(pending, LIMITS, 1000.0, flush=flush) == expected


@given(first=st.integers(0, 1000), size=st.integers(2, 1000))
def test_halves_are_the_whole_in_order(first: int, size: int) -> None:
    left, right = halves(Part(first, first + size))
    assert (left.first, left.last, right.last) == (first, right.first, first + size)
    assert left.size > 0
    assert right.size > 0


def test_a_single_record_has_no_halves() -> None:
    with pytest.raises(ValueError, match="single"):
        halves(Part(3, 4))


@pytest.mark.parametrize(
    "answer", [Delivered(), Delivered(3), Rejected({0: "x", 2: "y"}, 1), Poisoned("p"), Retry("r")]
)
def test_answers_that_make_sense_are_kept(answer: Any) -> None:
    assert sensible(answer, 3) == answer


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        "ok",
        Delivered,
        Delivered(4),
        Delivered(-1),
        Delivered(True),
        Rejected({3: "out of range"}),
        Rejected({-1: "out of range"}),
        Rejected({0: "x"}, 3),
        Rejected([0]),  # type: ignore[arg-type]
        Rejected({"0": "x"}),  # type: ignore[dict-item]
        Rejected({True: "x"}),
    ],
)
def test_nonsense_is_a_retry_that_says_so(answer: Any) -> None:
    found = sensible(answer, 3)
    assert isinstance(found, Retry)
    assert "sink" in found.reason


def test_reasons_are_bounded_and_in_order() -> None:
    found = sensible(Rejected({2: "z" * 10_000, 1: 7}), 3)  # type: ignore[dict-item]
    assert isinstance(found, Rejected)
    assert [(index, len(reason)) for index, reason in found.items.items()] == [(1, 1), (2, 500)]
