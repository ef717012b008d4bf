"""The collectors alone and in the daemon: files that change, exporters that answer oddly, a Lens that takes reports."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.collectors.diagnosis import DiagnosisAgent, LensClient, LogCollector, MetricCollector, StackCollector
from lens_plugins.collectors.xpu_timer import XpuTimer, XpuTimerSettings
from lens_plugins.dlrover import MasterError

from lens_core import Diagnosis, LensError
from lens_core.testing import check_collector
from lens_core.testing.hosts import make_context
from tests.end_to_end.running_lens import RunningLens, wait_for
from tests.plugins.collectors.diagnosis.clients import RecordingClient

SCRAPE = """# HELP exposer_transferred_bytes_total Transferred bytes
# TYPE exposer_transferred_bytes_total counter
exposer_transferred_bytes_total 21
# TYPE XPU_TIMER_COMMON_HANG gauge
XPU_TIMER_COMMON_HANG{ip="1",job_name="j",local_rank="0",pod_name="p",rank="0"} 0
XPU_TIMER_MM_KERNEL_AVG_LATENCY{dtype="bf16",level="0",operation="mm",rank="0"} 12.5
"""
KEPT = "\n".join(line for line in SCRAPE.splitlines() if line.startswith("XPU_TIMER_"))


@contextmanager
def exporter(body: bytes, status: int = 200) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_the_log_is_read_behind_a_position(tmp_path: Path) -> None:
    log = tmp_path / "training.log"
    log.write_text("one\ntwo\n")
    collector = LogCollector(log_file_path=str(log))
    assert collector.is_enabled()
    assert collector.collect_data() == "one\ntwo"
    assert collector.collect_data() == ""
    with log.open("a") as file:
        file.write("three\nhalf of four")
    assert collector.collect_data() == "three"
    log.rename(tmp_path / "training.log.1")
    with (tmp_path / "training.log.1").open("a") as file:
        file.write(" and the rest\n")
    log.write_text("five\n")
    assert collector.collect_data() == "half of four and the rest"
    assert collector.collect_data() == "five"
    log.write_text("6\n")
    assert collector.collect_data() == "6"


def test_of_a_large_log_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "training.log"
    lines = [f"iteration {number} | lm loss 1.0" for number in range(40_000)]
    log.write_text("\n".join(lines) + "\n")
    found = LogCollector(log_file_path=log).collect_data().splitlines()
    assert found == lines[len(lines) - len(found) :]
    assert 200_000 < sum(map(len, found)) <= 256 * 1024


def test_a_log_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    assert not LogCollector(log_file_path=tmp_path / "none").is_enabled()
    assert LogCollector(log_file_path=tmp_path / "none").collect_data() == ""
    odd = tmp_path / "odd"
    odd.write_bytes(b"\xff\xfe broken \x00\n")
    client = RecordingClient()
    collector = LogCollector(log_file_path=odd)
    collector.set_client(client)
    collector.store_data(collector.collect_data())
    assert "broken" in client.reports[0].data_content


def test_xpu_timers_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not MetricCollector().is_enabled()
    with exporter(SCRAPE.encode()) as port:
        monkeypatch.setenv("XPU_TIMER_PORT", str(port))
        collector = MetricCollector()
        client = RecordingClient()
        collector.set_client(client)
        assert collector.is_enabled()
        collector.store_data(collector.collect_data())
        assert [report.data_content for report in client.of_type("XPU_TIMER_METRIC")] == [KEPT]
    monkeypatch.setenv("XPU_TIMER_PORT", "no port")
    assert not collector.is_enabled()


def test_an_exporter_that_is_away_or_fails_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with exporter(b"oops", status=500) as port:
        collector = MetricCollector(port)
        assert collector.collect_data() == ""
    assert collector.collect_data() == ""
    assert [record.levelname for record in caplog.records if "XPU timer" in record.message] == ["WARNING"]


async def test_the_contract_of_collectors(tmp_path: Path) -> None:
    with exporter(SCRAPE.encode()) as port:
        collector = XpuTimer(XpuTimerSettings(port=port, workload_uid="w", node_rank=3), make_context("xpu", tmp_path))
        await check_collector(collector)
        [record] = await collector.collect()
        assert isinstance(record, Diagnosis)
        assert (record.origin.workload_uid, record.node_rank, record.data_content) == ("w", 3, KEPT)


async def test_samples_that_name_their_pod_belong_to_it(tmp_path: Path) -> None:
    with exporter(SCRAPE.replace('pod_name="p"', 'pod_name="trainer-0"').encode()) as port:
        [record] = await XpuTimer(XpuTimerSettings(port=port), make_context("xpu", tmp_path)).collect()
        assert record.origin.pod_name == "trainer-0"


def test_stacks_of_the_wrong_kind_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    collector = StackCollector()
    collector.set_client(RecordingClient())
    for wrong in ("text", {"0": "text"}, None):
        collector.store_data(wrong)
    assert len([record for record in caplog.records if "Invalid stack data" in record.message]) == 3


def test_reports_are_cut_with_a_mark() -> None:
    client = RecordingClient()
    collector = LogCollector()
    collector.set_client(client)
    collector.store_data("größe\n" * 100_000)
    content = client.reports[0].data_content
    assert len(content.encode()) <= 256 * 1024
    assert content.startswith("[… ")
    assert content.endswith("größe\n")


@pytest.mark.slow("waits for reports of a running agent")
def test_the_agent_reports_to_a_lens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lens = RunningLens(tmp_path / "lens").start()
    try:
        log = tmp_path / "training.log"
        log.write_text("iteration 1\n")
        monkeypatch.setenv("PRIMUS_LENS_API_BASE_URL", f"{lens.url}/api/v1")
        monkeypatch.setenv("WORKLOAD_UID", "agents-job")
        agent = DiagnosisAgent.singleton_instance(training_log_file=str(log), node_rank=6)
        agent.start()

        def nodes() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = lens.get("/workloads/agents-job/diagnosis")["nodes"]
            return [node for node in found if "TRAINING_LOG" in node["reports"]]

        [node] = wait_for(nodes, 240, "the agent's report")
        assert node["node_rank"] == 6
        agent.stop()
    finally:
        lens.end()


@pytest.mark.slow("waits for reports of a running agent")
def test_the_agent_has_a_pipeline_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.jsonl"
    config = tmp_path / "lens.yaml"
    config.write_text(f"sinks:\n  file: {{type: jsonl, path: {out}}}\n")
    monkeypatch.setenv("LENS_CONFIG", str(config))
    monkeypatch.setenv("LENS_DATA_DIR", str(tmp_path / "data"))
    log = tmp_path / "training.log"
    log.write_text("iteration 1\n")
    agent = DiagnosisAgent(training_log_file=str(log))
    agent.start()
    try:
        wait_for(lambda: out.exists() and "TRAINING_LOG" in out.read_text(), 240, "the report in the file")
        assert "iteration 1" in out.read_text()
    finally:
        agent.stop()
        agent.collectors[0]._client.close()


def test_a_lens_that_is_away_or_misspelt() -> None:
    with pytest.raises(LensError, match="not an address"):
        LensClient("localhost:8080")
    from lens_plugins.collectors.diagnosis import WorkerTrainingMetric

    with pytest.raises(MasterError, match="Connection refused"):
        LensClient("http://127.0.0.1:1/api/v1").report_diagnosis_agent_metrics(WorkerTrainingMetric())
