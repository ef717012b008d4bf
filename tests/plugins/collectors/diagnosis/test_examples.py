"""The examples of the documentation, which are the seed's with other import lines, run as they are written."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.collectors.diagnosis import DiagnosisAgent, LogCollector, WorkerTrainingMetric

from tests.end_to_end.running_lens import wait_for
from tests.plugins.collectors.diagnosis.clients import RecordingClient, example


def run(name: str, **names: Any) -> dict[str, Any]:
    """Run an example; the names that it leaves behind."""
    space: dict[str, Any] = {"__name__": "example", **names}
    exec(compile(example(name), f"docs/diagnosis.md: {name}", "exec"), space)
    return space


def test_the_agent() -> None:
    space = run("agent")
    agent = space["agent"]
    assert agent is DiagnosisAgent.singleton_instance()
    assert agent.is_running
    assert {type(collector).__name__ for collector in agent.collectors} >= {
        "LogCollector",
        "MetricCollector",
        "StackCollector",
    }
    assert all(collector._client is space["master_client"] for collector in agent.collectors)


def test_one_collector() -> None:
    assert not run("collector")["log_collector"].is_enabled()


def test_a_client_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    client = run("client")["MasterClient"]()
    collector = LogCollector(log_file_path="/nowhere")
    collector.set_client(client)
    collector.store_data("iteration 1")
    assert "TRAINING_LOG 0" in capsys.readouterr().out


def test_the_whole_with_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def train_one_epoch() -> None:
        raise ValueError("the learning rate must be positive")

    agent = run("whole", train_one_epoch=train_one_epoch)["agent"]
    assert "Diagnosis action: RESTART_WORKER" in capsys.readouterr().out
    assert not agent.is_running


def test_a_collector_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_lens.py").write_text(example("plugin"))
    monkeypatch.setenv("LENS_PLUGINS_DIR", str(tmp_path))
    agent = DiagnosisAgent()
    client = RecordingClient()
    agent.set_client(client)
    agent.start()
    [report] = wait_for(lambda: client.of_type("ACME_PROBE"))
    assert report.data_content == "temperature 63"
    agent.stop()


def test_the_seeds_messages(caplog: pytest.LogCaptureFixture) -> None:
    from lens_plugins.collectors.diagnosis import MasterClient

    collector = LogCollector()
    with caplog.at_level(logging.INFO, "lens.diagnosis"):
        collector.store_data("x")
        collector.store_data("x")
        collector.set_client(RecordingClient())
        collector.store_data("x" * 1024)
        collector.set_client(MasterClient(master_addr="127.0.0.1:1", service="http"))
        collector.store_data("x")
        collector.set_client(MasterClient(master_addr="127.0.0.1:1", service="grpc"))
        collector.store_data("x")
        collector.store_data(b"x")
    about_logs = [record for record in caplog.records if " log " in record.message]
    assert [f"{record.levelname} - {record.message}" for record in about_logs] == [
        "WARNING - Master client not set, log data not reported",
        "INFO - Reported log content: 1024 characters",
        "ERROR - Failed to report log data to master: Connection refused",
        "ERROR - Failed to report log data to master: Connection refused",
        "WARNING - Invalid log data, not reported: a str was expected, not a bytes",
    ]


def test_the_fields_of_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_ID", "7")
    monkeypatch.setenv("NODE_RANK", "3")
    report = WorkerTrainingMetric(timestamp=1795812165, data_type="XPU_TIMER_METRIC", data_content="...")
    assert report.to_json() == (
        '{"timestamp": 1795812165, "data_type": "XPU_TIMER_METRIC", "data_content": "...", "node_id": 7, '
        '"node_type": "worker", "node_rank": 3, "is_final_result": false, "need_report": false}'
    )
    assert WorkerTrainingMetric.from_json(report.to_json()) == report
