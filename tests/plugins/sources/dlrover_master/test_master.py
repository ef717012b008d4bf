"""Lens as a master: DLRover's own client, unmodified, over both transports; what it takes, what it refuses."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.collectors.diagnosis import MasterClient, WorkerTrainingMetric
from lens_plugins.dlrover import MasterConnection, MasterError, Wire, dump
from lens_plugins.sources.dlrover_master import DlroverMaster, DlroverMasterSettings

from lens_core import Diagnosis, Event, IngestRequest, StepMetrics
from lens_core.testing import check_source
from lens_core.testing.hosts import make_context
from lens_core.testing.sources import RecordingGate
from tests.end_to_end.running_lens import RunningLens, http_post, wait_for
from tests.plugins.collectors.diagnosis.dlrover_world import dlrover_environment
from tests.ports import free_port

CONFIG = """
sources:
  dlrover_master: {{grpc_listen: "127.0.0.1:{port}"}}
sinks:
  store: {{type: postgresql}}
"""

# What an unmodified agent of DLRover does with its master, diagnosis and all around it.
AGENT = """
import sys, time
from dlrover.python.elastic_agent.master_client import MasterClient
from dlrover.python.diagnosis.common.diagnosis_data import WorkerTrainingMetric
client = MasterClient.singleton_instance()
assert client is not None
for number in range(3):
    client.report_diagnosis_agent_metrics(WorkerTrainingMetric(
        data_type="XPU_TIMER_METRIC", data_content='XPU_TIMER_COMMON_HANG{rank="0"} 1',
        timestamp=int(time.time()) - 60 * number))
client.report_diagnosis_agent_metrics(WorkerTrainingMetric(data_type="TRAINING_LOG", data_content="größe"))
assert type(client.report_heart_beat(int(time.time()))).__name__ == "NoAction"
for step in range(3):
    client.report_global_step(100 + step, int(time.time()) - 30 + 10 * step, 0.5)
client.report_used_resource(10, 0.5, [])
client.report_pre_check_status("WAIT_PRE_CHECK", "{}")
assert client.get_pre_check_result() == "DISABLED"
assert client.get_elastic_run_config() == {}
assert client.need_to_restart_training() is False
client.report_failures("RuntimeError: CUDA error: uncorrectable ECC error encountered", 1, "process_error")
print("done")
"""


@pytest.mark.slow("a real agent reports at intervals that it fixes")
@pytest.mark.parametrize("service", ["grpc", "http"])
def test_an_unmodified_agent_reports_to_lens(service: str, tmp_path: Path) -> None:
    port = free_port()
    lens = RunningLens(tmp_path / "lens", CONFIG.format(port=port)).start()
    try:
        address = f"127.0.0.1:{port}" if service == "grpc" else lens.url.removeprefix("http://")
        variables = {
            "DLROVER_MASTER_ADDR": address,
            "DLROVER_MASTER_SERVICE_TYPE": service,
            "NODE_ID": "1",
            "NODE_RANK": "1",
            "NODE_TYPE": "worker",
            "JOB_UID": "job-7",
            "PYTHONPATH": "",
            "LENS_RUN": "",
        }
        done = dlrover_environment().run(AGENT, tmp_path, variables, seconds=240)
        assert "done" in done.stdout

        def answer() -> dict[str, Any] | None:
            found: dict[str, Any] = lens.get("/workloads/job-7/diagnosis")
            return found if found["nodes"] and found["advice"] and found["progress"] else None

        found = wait_for(answer, 240, "the reports")
        [node] = found["nodes"]
        assert (node["node_rank"], node["node_id"], node["node_type"]) == (1, 1, "worker")
        assert set(node["reports"]) == {"XPU_TIMER_METRIC", "TRAINING_LOG"}
        assert found["progress"]["iteration"] == 102
        assert found["advice"]["action"] == "RELAUNCH_WORKER"
        assert found["hang"]["verdict"] == "no"
        assert "training_failed" in found["hang"]["reason"]
    finally:
        lens.end()


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[tuple[DlroverMaster, RecordingGate]]:
    source = DlroverMaster(
        DlroverMasterSettings(grpc_listen="127.0.0.1:0", workload_uid="the-job"), make_context("master", tmp_path)
    )
    gate = RecordingGate()
    source.gate = gate
    await source.start()
    yield source, gate
    await source.stop()


async def test_reports_of_our_own_client(master: tuple[DlroverMaster, RecordingGate]) -> None:
    source, gate = master
    client = MasterClient(f"127.0.0.1:{source.grpc_port}", node_id=3, service="grpc")
    report = WorkerTrainingMetric(timestamp=1_800_000_000, data_type="STACK_TRACE", data_content="{}", node_rank=2)
    await asyncio.to_thread(client.report_diagnosis_agent_metrics, report)
    await asyncio.to_thread(client.report_failures, "boom", 2)
    beat = await asyncio.to_thread(client.report_heart_beat, 1)
    assert beat is not None
    assert beat.name == "HeartbeatResponse"
    diagnosis, event = gate.records
    assert isinstance(diagnosis, Diagnosis)
    assert (diagnosis.origin.workload_uid, diagnosis.node_rank, diagnosis.timestamp) == ("the-job", 2, 1_800_000_000.0)
    assert isinstance(event, Event)
    assert (event.type, event.details["restart_count"]) == ("training_failed", 2)
    client.close()


async def test_what_is_not_taken_is_refused_and_counted(master: tuple[DlroverMaster, RecordingGate]) -> None:
    source, gate = master
    connection = MasterConnection(f"127.0.0.1:{source.grpc_port}")
    for message in (
        Wire("NodeMeta", {"type": "worker"}),
        Wire("DiagnosisReportData", {"data_content": "{not json"}),
        Wire("NoSuchMessage", {}),
    ):
        with pytest.raises(MasterError, match="refused"):
            await asyncio.to_thread(connection.report, message)
    assert sum(gate.rejected.values()) == 3
    assert not gate.records
    assert await asyncio.to_thread(connection.get, Wire("NodeMeta", {})) is None
    connection.close()


async def test_a_full_spool_is_said_so_that_the_sender_comes_again(
    master: tuple[DlroverMaster, RecordingGate],
) -> None:
    source, gate = master
    gate.overloaded = True
    connection = MasterConnection(f"127.0.0.1:{source.grpc_port}", deadline_seconds=0.3)
    with pytest.raises(MasterError, match="UNAVAILABLE") as error:
        await asyncio.to_thread(connection.report, Wire("GlobalStep", {"step": 1, "timestamp": 5}))
    assert not error.value.permanent
    gate.overloaded = False
    await asyncio.to_thread(connection.report, Wire("GlobalStep", {"step": 1, "timestamp": 5}))
    [row] = gate.records
    assert isinstance(row, StepMetrics)
    assert (row.row_step, row.event_time) == (1, 5.0)
    connection.close()


def post(path: str, message: Wire) -> IngestRequest:
    data = base64.b64encode(dump(message)).decode()
    body = json.dumps({"node_id": 1, "node_type": "worker", "data": data}).encode()
    headers = {"content-type": "application/json", "job_uid": "j"}
    return IngestRequest(body=body, path=path, method="POST", headers=headers, query={})


async def test_the_contract_of_sources(tmp_path: Path) -> None:
    source = DlroverMaster(DlroverMasterSettings(), make_context("master", tmp_path))
    content = json.dumps({"data_type": "STACK_TRACE", "data_content": "{}", "timestamp": int(time.time())})
    await check_source(
        source,
        [
            post("/report", Wire("DiagnosisReportData", {"data_content": content})),
            post("/report", Wire("GlobalStep", {"step": 1, "timestamp": 5})),
        ],
    )


@pytest.mark.slow("a real agent reports at intervals that it fixes")
def test_a_stranger_cannot_report_over_http(tmp_path: Path) -> None:
    lens = RunningLens(tmp_path / "lens").start()
    try:
        response = http_post(f"{lens.url}/report", json={}, headers={"X-Forwarded-For": "10.0.0.1"})
        assert response.status_code == 401
    finally:
        lens.end()
