"""Against a real DLRover master: what is reported is what it has stored, over both transports."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest
from lens_plugins.collectors.diagnosis import LogCollector, MasterClient, WorkerTrainingMetric
from lens_plugins.dlrover import MasterConnection, MasterError, Wire
from lens_plugins.sinks.dlrover import Dlrover, DlroverSettings

import lens_core
from lens_core import Batch, Delivered, Diagnosis, Position, Rejected, Retry
from lens_core.testing.hosts import make_context
from tests.durations import Stopwatch
from tests.plugins.collectors.diagnosis.clients import example
from tests.plugins.collectors.diagnosis.dlrover_world import RealMaster, dlrover_environment, real_master

both = pytest.mark.parametrize("service", ["grpc", "http"])


@both
def test_what_is_reported_is_what_the_master_has(service: str, tmp_path: Path) -> None:
    with real_master(service, tmp_path) as master:
        client = MasterClient(master_addr=master.address, node_id=4, node_type="worker", service=service)
        report = WorkerTrainingMetric(
            timestamp=int(time.time()) - 5,
            data_type="STACK_TRACE",
            data_content="größe \U0001f600\n" * 50,
            node_id=4,
            node_rank=2,
        )
        client.report_diagnosis_agent_metrics(report)
        assert master.stored("STACK_TRACE") == [json.loads(report.to_json())]
        answer = client.report_heart_beat(int(time.time()))
        assert answer is not None
        assert answer.fields["action"].fields["action_cls"] == "NoAction"
        client.report_failures("CUDA error", restart_count=1)
        log = tmp_path / "training.log"
        log.write_text("iteration 1\niteration 2\n")
        collector = LogCollector(log_file_path=log)
        collector.set_client(client)
        collector.store_data(collector.collect_data())
        assert [found["data_content"] for found in master.stored("TRAINING_LOG")] == ["iteration 1\niteration 2"]
        client.close()


@both
def test_refusals_are_errors_and_come_at_once(service: str, tmp_path: Path) -> None:
    with real_master(service, tmp_path) as master:
        connection = MasterConnection(master.address, service=service)
        for message in (
            Wire("DiagnosisReportData", {"data_cls": "NoSuchClass", "data_content": "{}", "node_rank": 0}),
            Wire("NoSuchMessage", {}),
        ):
            watch = Stopwatch()
            with pytest.raises(MasterError) as refused:
                connection.report(message)
            assert refused.value.permanent
            assert watch.seconds() < 20  # the original tries for 50 s
        if service == "grpc":
            large = Wire("DiagnosisReportData", {"data_content": "x" * (5 << 20)})
            with pytest.raises(MasterError, match="RESOURCE_EXHAUSTED"):
                connection.report(large)
        connection.close()


@both
async def test_the_sink(service: str, tmp_path: Path) -> None:
    with real_master(service, tmp_path) as master:
        settings = DlroverSettings(address=master.address, service=service)
        sink = Dlrover(settings, make_context("dlrover", tmp_path))
        await sink.start()
        await sink.check()
        records = [
            Diagnosis(data_type="XPU_TIMER_METRIC", data_content=f"n {number}", node_id=number, node_type="worker")
            for number in range(3)
        ]
        batch = Batch(
            records=records, start=Position(0, 0), end=Position(1, 3), spool_id="s", pipeline="p", sink="dlrover"
        )
        assert await sink.send(batch) == Delivered()
        await sink.stop()
        stored = [(found["node_id"], found["data_content"]) for found in master.stored("XPU_TIMER_METRIC")]
        assert stored == [(0, "n 0"), (1, "n 1"), (2, "n 2")]
    away = await sink.send(batch)
    assert isinstance(away, Retry)
    assert not isinstance(away, Rejected)


def test_dlrovers_own_client_is_a_client(tmp_path: Path) -> None:
    with real_master("grpc", tmp_path) as master:
        # DLRover's packages first, then those that Lens needs, which that environment lacks.
        code = example("dlrover").replace("localhost:50051", master.address)
        paths = [str(Path(lens_core.__file__).parent.parent), str(Path(msgspec.__file__).parent.parent)]
        script = (
            f"import sys\nsys.path += {paths!r}\nimport lens_core\n"
            "import importlib.util, types\n"
            "if importlib.util.find_spec('lens_plugins') is None:\n"
            "    module = types.ModuleType('lens_plugins'); module.__path__ = [sys.path[-2] + '/plugins']\n"
            "    sys.modules['lens_plugins'] = module\n"
            f"{code}\n"
            "assert master_client is not None\n"
            "[collector] = [found for found in agent.collectors if found.what == 'log']\n"
            "collector.store_data('from the log')\n"
        )
        dlrover_environment().run(script, tmp_path, {"PYTHONPATH": "", "LENS_RUN": ""}, seconds=240)
        assert [found["data_content"] for found in master.stored("TRAINING_LOG")] == ["from the log"]


HANG = 'XPU_TIMER_COMMON_HANG{{ip="1",job_name="j",local_rank="0",pod_name="p",rank="0"}} {value}\n'


def test_what_dlrovers_own_rule_says(tmp_path: Path) -> None:
    """The real rule's false alarm, beside which ours is tested in tests/lens_core/diagnosis."""
    with real_master("grpc", tmp_path) as master:
        _report(master, "XPU_TIMER_COMMON_GC_COUNT 5\n")
        assert master.is_hang()
    (tmp_path / "second").mkdir()
    with real_master("grpc", tmp_path / "second") as master:
        _report(master, HANG.format(value="1.0"))
        assert not master.is_hang()


def _report(master: RealMaster, text: str) -> None:
    client = MasterClient(master_addr=master.address, service="grpc")
    now = int(time.time())
    for ago in range(420, -1, -60):
        client.report_diagnosis_agent_metrics(
            WorkerTrainingMetric(timestamp=now - ago, data_type="XPU_TIMER_METRIC", data_content=text, node_rank=0)
        )
    client.close()
