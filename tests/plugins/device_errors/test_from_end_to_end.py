"""Errors of devices from a line of the kernel and from DCGM's series to the interruption and the finding of a job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.analyzers.goodput.ledger import ledger_of
from lens_plugins.analyzers.goodput.store_facts import facts_of
from lens_plugins.analyzers.regressions import Regressions
from lens_plugins.analyzers.regressions.analyzer import RegressionsSettings
from lens_plugins.device_errors import event_of, node_uid, parse_kernel_line
from lens_plugins.sources.logs import Logs
from lens_plugins.sources.remote_write.settings import RemoteWriteSettings

from lens_core import Event, IngestRequest, LogLine, Origin, Overloaded, PodLife, Record, StepMetrics
from lens_core.testing import MemoryStore, RecordingGate, make_context
from tests.plugins.sources.ingest_app import IngestApp
from tests.plugins.sources.remote_write.conftest import Receiver
from tests.plugins.sources.remote_write.wire import WriteRequest, packed

UID, NODE = "job-1", "gpu-node-18"
OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID, REPLAYS = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"


def rows(first: int, last: int, begin: float, session: str, node: str = NODE) -> list[Record]:
    return [
        StepMetrics(
            origin=Origin(workload_uid=UID, node=node),
            data_source="wandb",
            row_step=step,
            values={"loss": 2.0},
            run_id="run-1",
            session=session,
            event_time=begin + 10.0 * index,
        )
        for index, step in enumerate(range(first, last + 1))
    ]


def failed(at: float, kind: str = "collective_timeout", **details: Any) -> Event:
    origin = Origin(workload_uid=UID, node="gpu-node-3", rank=5)
    return Event(origin=origin, type=kind, run_id="run-1", attempt=1, event_time=at, details=details)


def job(begin: float, end: Event) -> list[Record]:
    """A hundred steps from `begin` on, an end, and a restart from step 80 a while later."""
    return [*rows(1, 100, begin, "a"), end, *rows(81, 150, (end.event_time or 0.0) + 300, "b")]


def kernel_event(at: float, line: str = OFF_THE_BUS, node: str = NODE) -> Event:
    error = parse_kernel_line(line)
    assert error is not None
    event: Event = event_of(error, node, at, "kernel")
    return event


async def interruptions_of(
    folder: Path, records: Sequence[Record], pods: Sequence[PodLife] = ()
) -> list[tuple[Any, ...]]:
    store = MemoryStore(folder, records)
    store.hold_pods(UID, pods)
    [facts] = await facts_of(store, UID)
    return [(one.cause, one.node, one.rank) for one in ledger_of(facts).interruptions]


FELL_OFF = ("Xid 79: GPU fell off the bus", NODE, None)
TIMED_OUT = ("collective_timeout", "gpu-node-3", 5)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([kernel_event(1e9 + 995)], FELL_OFF),
        # NCCL's timeout comes half an hour behind the error.
        ([kernel_event(1e9 + 995), kernel_event(1e9 + 1000, "NVRM: Xid (PCI:0000:3b:00): 74, Ch 1")], FELL_OFF),
        ([kernel_event(1e9 + 2900)], FELL_OFF),
        ([kernel_event(1e9 + 2790, "NVRM: Xid (PCI:0000:5d:00): 31, Ch 8"), kernel_event(1e9 + 2795)], FELL_OFF),
        ([kernel_event(1e9 + 995, node=f"{NODE}.cluster.example")], TIMED_OUT),
        ([kernel_event(1e9 + 995, node="elsewhere")], TIMED_OUT),
        ([kernel_event(1e9 + 500)], TIMED_OUT),  # training went on
        ([kernel_event(1e9 + 3000)], TIMED_OUT),  # of the attempt behind
        ([kernel_event(1e9 + 995, "NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper")], TIMED_OUT),
        ([kernel_event(1e9 + 995, "NVRM: Xid (PCI:0000:3b:00): 92, high single-bit")], TIMED_OUT),
        ([], TIMED_OUT),
    ],
)
async def test_an_error_near_an_end_is_its_cause(tmp_path: Path, seen: list[Event], expected: tuple[Any, ...]) -> None:
    assert await interruptions_of(tmp_path, [*job(1e9, failed(1e9 + 2800)), *seen]) == [expected]


async def test_the_nodes_of_a_job_are_known_by_its_pods_too(tmp_path: Path) -> None:
    records = [
        *rows(1, 100, 1e9, "a", ""),
        failed(1e9 + 1000),
        *rows(81, 150, 1e9 + 1300, "b", ""),
        kernel_event(1e9 + 996),
    ]
    assert await interruptions_of(tmp_path / "without", records) == [TIMED_OUT]
    pod = PodLife(uid="p", namespace="ml", name="p-0", node=NODE, first_seen=10**12, last_seen=10**12 + 10**6)
    assert await interruptions_of(tmp_path / "with", records, [pod]) == [FELL_OFF]


async def test_a_silent_death_and_a_preemption_are_explained_and_running_out_of_memory_is_not(tmp_path: Path) -> None:
    silent = [*rows(1, 100, 1e9, "a"), *rows(81, 150, 1e9 + 1300, "b"), kernel_event(1e9 + 996)]
    assert await interruptions_of(tmp_path / "silent", silent) == [FELL_OFF]
    asked = job(1e9, failed(1e9 + 1000, "process_terminated", signal="SIGTERM"))
    assert await interruptions_of(tmp_path / "asked", [*asked, kernel_event(1e9 + 996)]) == [FELL_OFF]
    full = job(1e9, failed(1e9 + 1000, "out_of_memory"))
    [found] = await interruptions_of(tmp_path / "full", [*full, kernel_event(1e9 + 996)])
    assert found[0] == "out_of_memory"


async def test_the_number_in_a_jobs_own_log_is_the_cause(tmp_path: Path) -> None:
    own = failed(1e9 + 1000, "training_failed", xid=94.0, device="0000:3b:00", reason="pid=1, Contained")
    [found] = await interruptions_of(tmp_path, job(1e9, own))
    assert found == ("Xid 94: contained ECC error", "gpu-node-3", 5)


async def test_a_finding_says_what_the_error_cost_and_is_told_once(tmp_path: Path) -> None:
    begin = time.time() - 7200
    records = [*job(begin, failed(begin + 1000)), kernel_event(begin + 995)]
    store = MemoryStore(tmp_path / "store", records)
    analyzer = Regressions(RegressionsSettings(longest_rest_seconds=0), make_context("regressions", tmp_path))
    analyzer.store = store
    await analyzer.start()
    [event] = [one for one in await analyzer.analyze([UID]) if isinstance(one, Event) and one.type == "device_error"]
    assert event.origin == Origin(workload_uid=UID, node=NODE)
    assert event.details == {
        "rule": "a line of the kernel's log",
        "error": "Xid 79: GPU fell off the bus",
        "kind": "xid",
        "node": NODE,
        "device": "0000:3b:00",
        "stopped_job": True,
        "cost_seconds": pytest.approx(event.details["cost_seconds"]),
        "reason": "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "xid": 79,
    }
    [facts] = await facts_of(store, UID)
    assert event.details["cost_seconds"] == ledger_of(facts).interruptions[0].seconds > 300
    await analyzer.stored()
    store.hold([event])
    assert not await analyzer.analyze([UID])
    [route] = analyzer.routes()
    asked = IngestRequest(body=b"", path="/", method="GET", headers={}, query={}, path_parameters={"uid": UID})
    body = (await route.handler(asked)).body
    assert isinstance(body, dict)
    [found] = body["runs"][0]["findings"]
    assert (found["details"]["node"], found["details"]["stopped_job"]) == (NODE, True)
    assert await interruptions_of(tmp_path / "again", [*records, event]) == [FELL_OFF]


async def test_a_line_of_the_kernel_needs_no_more_than_its_node(tmp_path: Path) -> None:
    app = IngestApp(Logs, tmp_path)
    entries = [
        {"date": 1e9, "msg": OFF_THE_BUS, "node": NODE},
        {"date": 1e9, "message": f"Nov 29 12:00:01 {NODE} kernel: [1.2] {OFF_THE_BUS}"},
        {"date": 1e9, "message": OFF_THE_BUS, "pod_name": "trainer-0", "node": NODE},
        {"date": 1e9, "message": "eth0: link up", "node": NODE},
        {"date": 1e9, "message": OFF_THE_BUS},
    ]
    answer = await app.post("/logs", json=entries)
    assert [(one["index"], one["reason"]) for one in answer.json()["rejected"]] == [
        (3, "no_identity"),
        (4, "no_identity"),
    ]
    first, second, line = app.gate.records
    assert isinstance(line, LogLine)
    for event in (first, second):
        assert isinstance(event, Event)
        assert (event.type, event.origin.node, event.event_time) == ("device_error", NODE, 1e9)
        assert event.origin.workload_uid == node_uid(NODE)
        assert event.details["error"] == "Xid 79: GPU fell off the bus"


def series(name: str, value: float, at_ms: int, **labels: str) -> bytes:
    request = WriteRequest()
    for more in ({"__name__": "up"}, {"__name__": name, "Hostname": NODE, **labels}, {"__name__": "node_load1"}):
        one = request.timeseries.add()
        for key, text in sorted(more.items()):
            one.labels.add(name=key, value=text)
        one.samples.add(value=value, timestamp=at_ms)
    return bytes(request.SerializeToString())


async def test_series_of_dcgm_become_events_of_their_node(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    labels = {"gpu": "3", "UUID": "GPU-abc", "pci_bus_id": "00000000:3B:00.0"}
    for at, value in enumerate([0.0, 0.0, 79.0, 79.0]):
        answer = await receiver.write(packed(series(XID, value, 10**12 + at * 15_000, **labels)))
        assert answer.status_code == 204
    [event] = [record for record in receiver.gate.records if isinstance(record, Event)]
    assert (event.type, event.origin.node, event.event_time) == ("device_error", NODE, 1e9 + 30)
    assert (event.details["error"], event.details["device"]) == ("Xid 79: GPU fell off the bus", "00000000:3B:00.0")
    # The same request again, as a sender does that got no answer.
    await receiver.write(packed(series(XID, 0.0, 10**12, **labels)))
    await receiver.write(packed(series(XID, 79.0, 10**12 + 30_000, **labels)))
    assert sum(isinstance(record, Event) for record in receiver.gate.records) == 1


class GateRefusingEvents(RecordingGate):
    """Refuses events until it is told otherwise; series pass."""

    are_refused = True

    async def submit(self, records: Sequence[Record], **counts: Any) -> None:
        """As RecordingGate."""
        if self.are_refused and any(isinstance(record, Event) for record in records):
            raise Overloaded("the spool is full", retry_after_seconds=7)
        await super().submit(records, **counts)


async def test_an_error_that_is_refused_comes_with_the_next_request(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    receiver.source.gate = gate = GateRefusingEvents()
    await receiver.write(packed(series(XID, 0.0, 10**12, gpu="0")))
    for _ in range(2):  # as the sender does that is told to come again
        answer = await receiver.write(packed(series(XID, 79.0, 10**12 + 15_000, gpu="0")))
        assert answer.status_code == 503
    gate.are_refused = False
    answer = await receiver.write(packed(series("up", 1.0, 10**12 + 15_000)))
    assert answer.status_code == 204
    assert [record.event_time for record in gate.records if isinstance(record, Event)] == [1e9 + 15]


async def test_other_series_and_those_without_a_node_become_none(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    for at in range(3):
        for name in ("DCGM_FI_DEV_GPU_UTIL", "my_DCGM_FI_DEV_XID_ERRORS_seen"):
            await receiver.write(packed(series(name, 50.0 * at, 10**12 + at * 15_000, gpu="0")))
        body = series(XID, 79.0 * at, 10**12 + at * 15_000, gpu="0").replace(b"Hostname", b"Nickname")
        await receiver.write(packed(body))
        await receiver.write(packed(series(REPLAYS, float(at), 10**12 + at * 15_000, gpu="0")))
    assert not any(isinstance(record, Event) for record in receiver.gate.records)


async def test_the_setting_switches_it_off(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path, RemoteWriteSettings(device_errors=False))
    await receiver.write(packed(series(XID, 79.0, 10**12, gpu="0")))
    assert not any(isinstance(record, Event) for record in receiver.gate.records)


async def test_series_are_looked_through_only_where_an_exporter_of_gpus_was_heard_of(tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)
    enricher = receiver.source._enricher  # type: ignore[attr-defined]
    await receiver.write(packed(series("container_cpu_usage_seconds_total", 1.0, 10**12)))
    assert not enricher.counter_words
    for at, value in enumerate([0.0, 2.0]):
        await receiver.write(packed(series("amd_gpu_ecc_uncorrect_total", value, 10**12 + at * 15_000, gpu_id="3")))
    assert enricher.counter_words == {b"gpu_ecc_", b"pcie_replay_count"}
    [event] = [record for record in receiver.gate.records if isinstance(record, Event)]
    assert (event.details["error"], event.details["device"]) == ("uncorrectable ECC errors", "gpu_id 3")
