"""A held event loop is noticed, with the code that held it."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lens_core import Collector, Measurement
from lens_core.base.self_metrics import SelfMetrics
from lens_core.cli import checks_symptoms
from lens_core.daemon.blame import Blame
from lens_core.daemon.loop_watch import THRESHOLD_SECONDS, HeldFrame, LoopHold, LoopWatch, describe_hold
from lens_core.testing import LensFactory
from lens_core.testing.hosts import host_of
from lens_core.testing.waiting import until


def guilty_function(seconds: float) -> None:
    """Blocks whoever calls it."""
    time.sleep(seconds)


class BlocksOnce(Collector):
    """Blocks the loop in its first run."""

    name = "blocks_once"

    async def collect(self) -> list[Measurement]:
        guilty_function(0.6)
        return []


async def test_a_hold_has_its_length_and_the_stack_of_what_held_it(caplog: pytest.LogCaptureFixture) -> None:
    holds: list[LoopHold] = []
    watch = LoopWatch(threshold_seconds=0.2, on_hold=holds.append)
    watch.start()
    try:
        with caplog.at_level(logging.WARNING, logger="lens.loop"):
            guilty_function(0.8)
            await until(lambda: bool(holds), "the hold is recorded")
    finally:
        watch.stop()
    (hold,) = holds
    assert hold.seconds >= 0.5
    assert hold.stack[0].function == "guilty_function"
    assert hold.stack[0].module == __name__
    assert "guilty_function" in caplog.text
    assert watch.loop_status().holds == 1
    assert watch.loop_status().longest_seconds >= 0.5


async def test_a_loop_that_goes_on_is_never_reported() -> None:
    watch = LoopWatch(threshold_seconds=30.0)
    watch.start()
    ends = time.monotonic() + 0.4
    await until(lambda: time.monotonic() > ends, "some beats have passed")
    assert watch.current() is None
    watch.stop()
    assert watch.loop_status().holds == 0


async def test_a_hold_that_goes_on_is_seen_from_another_thread() -> None:
    watch = LoopWatch(threshold_seconds=0.2)
    watch.start()
    seen: list[LoopHold] = []
    other = threading.Thread(target=_record_current, args=(watch, seen))
    other.start()
    other.join()  # which holds the loop
    watch.stop()
    assert seen
    assert seen[0].stack


def _record_current(watch: LoopWatch, seen: list[LoopHold]) -> None:
    ends = time.monotonic() + 20
    while not seen and time.monotonic() < ends:
        if (hold := watch.current()) is not None:
            seen.append(hold)
        time.sleep(0.005)


class Waits(Collector):
    """Has a method that holds the loop."""

    name = "waits"

    async def collect(self) -> list[Measurement]:
        return []


@given(seconds=st.floats(0.25, 20), starved=st.floats(0, 25))
@example(seconds=0.5, starved=0.2)
@example(seconds=10.0, starved=9.5)
def test_a_plugin_is_blamed_for_the_time_in_which_it_had_a_processor(seconds: float, starved: float) -> None:
    frame = HeldFrame(__file__, 1, "collect", __name__)
    hold = LoopHold(began_at=0.0, seconds=seconds, starved_seconds=starved, stack=(frame,))
    blame = Blame(host_of(Waits), SelfMetrics())
    blame.record_hold(hold)
    own = round(max(0.0, seconds - starved), 3)
    if own < max(THRESHOLD_SECONDS, seconds / 2):
        assert not blame.blockers()
    else:
        (blocker,) = blame.blockers()
        assert blocker.seconds == blocker.longest_seconds == own
    assert ("without a processor" in describe_hold(hold)) <= (starved >= 0.01)


def test_a_process_that_was_stopped_is_not_blamed_on_code() -> None:
    frame = HeldFrame("selectors.py", 1, "select", "selectors")
    hold = LoopHold(began_at=0.0, seconds=2.0, stack=(frame,))
    assert "did not run" in describe_hold(hold)


async def test_the_daemon_says_what_held_it(lens: LensFactory) -> None:
    running = await lens(BlocksOnce, config={"collectors": {"slow": {"type": "blocks_once", "interval_seconds": 3600}}})
    await until(lambda: running.daemon.loop_watch.loop_status().holds > 0, "the hold is recorded")
    status = await running.get_json("/status")
    stacks = [[frame["function"] for frame in hold["stack"]] for hold in status["event_loop"]["last"]]
    assert any("guilty_function" in stack for stack in stacks)
    (found,) = checks_symptoms.event_loop(status)
    assert found.state == "warning"
    assert "lens_event_loop_holds_total 0.0" not in running.daemon.metrics.exposition().decode()
