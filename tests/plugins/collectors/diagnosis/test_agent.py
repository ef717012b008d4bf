"""The agent: one per process, idempotent, never blocked by its master."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.collectors.diagnosis import DataCollector, DiagnosisAgent

from tests.end_to_end.running_lens import wait_for
from tests.plugins.collectors.diagnosis.clients import FailingClient, RecordingClient


class Ticking(DataCollector):  # type: ignore[misc]
    data_type = "TICK"
    what = "tick"
    interval_seconds = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.ticks = 0

    def is_enabled(self) -> bool:
        return True

    def collect_data(self) -> str:
        self.ticks += 1
        return f"tick {self.ticks}"


def has_ticked(ticking: Ticking) -> bool:
    return ticking.ticks > 2


def test_one_agent_for_all_threads() -> None:
    barrier = threading.Barrier(8)

    def ask(_: int) -> DiagnosisAgent:
        barrier.wait()
        return DiagnosisAgent.singleton_instance(node_rank=0)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(id, pool.map(ask, range(8))))) == 1


def test_start_and_stop_any_number_of_times(tmp_path: Path) -> None:
    log = tmp_path / "training.log"
    log.write_text("iteration 1\n")
    agent = DiagnosisAgent.singleton_instance(training_log_file=str(log), node_rank=5)
    client = RecordingClient()
    agent.set_client(client)
    agent.stop()
    for _ in range(2):
        agent.start()
        agent.start()
        ticking = Ticking()
        agent.register_collector(ticking)
        wait_for(partial(has_ticked, ticking))
        agent.stop()
        agent.stop()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("lens-diagnosis-tick")]
    wait_for(lambda: client.of_type("TRAINING_LOG"))
    [report] = client.of_type("TRAINING_LOG")
    assert (report.data_content, report.node_rank) == ("iteration 1", 5)


def test_without_a_client_there_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    agent = DiagnosisAgent()
    ticking = Ticking()
    agent.register_collector(ticking)
    with caplog.at_level(logging.WARNING, "lens.diagnosis"):
        agent.start()
        wait_for(lambda: ticking.ticks > 5)
        agent.stop()
    warnings = [record.message for record in caplog.records if "tick" in record.message]
    assert warnings == ["Master client not set, tick data not reported"]


def test_a_master_that_hangs_stops_neither_collecting_nor_the_caller() -> None:
    class Stuck:
        def __init__(self) -> None:
            self.release = threading.Event()
            self.calls = 0

        def report_diagnosis_agent_metrics(self, data: Any) -> None:
            self.calls += 1
            self.release.wait()

    agent, ticking, client = DiagnosisAgent(), Ticking(), Stuck()
    agent.register_collector(ticking)
    agent.set_client(client)
    agent.start()
    wait_for(lambda: agent.dropped_reports > 5)
    assert client.calls == 1
    agent.stop(deadline_seconds=1.0)  # returns, though the client does not
    client.release.set()


def test_a_failing_master_and_a_failing_collector_disturb_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Ticking):
        what = "broken"

        def collect_data(self) -> str:
            self.ticks += 1
            raise RuntimeError("no sensor")

    agent, ticking, broken = DiagnosisAgent(), Ticking(), Broken()
    agent.set_client(FailingClient())
    agent.register_collector(broken)
    agent.register_collector(ticking)
    with caplog.at_level(logging.ERROR, "lens.diagnosis"):
        agent.start()
        wait_for(lambda: ticking.ticks > 3 and broken.ticks > 3)
        wait_for(lambda: "Failed to report tick data to master: Connection refused" in caplog.messages)
        agent.stop()
    assert "A diagnosis collector failed. collector=broken" in caplog.messages


def test_a_later_call_with_other_arguments_is_said(caplog: pytest.LogCaptureFixture) -> None:
    first = DiagnosisAgent.singleton_instance(node_rank=0)
    assert DiagnosisAgent.singleton_instance(node_rank=1) is first
    assert "ignoring these arguments" in caplog.text


def test_a_failure_is_told_to_the_master_in_the_background() -> None:
    class Telling(RecordingClient):
        def __init__(self) -> None:
            super().__init__()
            self.failures: list[tuple[str, int, str]] = []

        def report_failures(self, error_data: str, restart_count: int, level: str) -> None:
            self.failures.append((error_data, restart_count, level))

    agent, client = DiagnosisAgent(), Telling()
    agent.set_client(client)
    agent.diagnose_training_failure({"error": "boom"}, restart_count=1)
    wait_for(lambda: client.failures)
    assert client.failures == [("boom", 1, "process_error")]
