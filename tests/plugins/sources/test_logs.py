"""POST /logs: the bodies of real shippers, broken ones, identity, times and parts of lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lens_plugins.sources.log_entries import seconds_of
from lens_plugins.sources.logs import Logs, LogsSettings

from lens_core import IngestRequest, LogLine, Pod
from lens_core.testing import RecordingGate, check_source, make_context
from tests.plugins.sources.ingest_app import IngestApp

Make = Callable[..., IngestApp]

KUBERNETES = {
    "pod_name": "trainer-0",
    "namespace_name": "ml",
    "pod_id": "11-22",
    "host": "node-7",
    "container_name": "pytorch",
    "labels": {"training.kubeflow.org/job-name": "job-1", "training.kubeflow.org/replica-type": "worker"},
}


def entry(message: str, **more: Any) -> dict[str, Any]:
    return {"date": 1234567890.123456, "stream": "stdout", "message": message, "kubernetes": KUBERNETES} | more


def lines_of(app: IngestApp) -> list[LogLine]:
    return [record for record in app.gate.records if isinstance(record, LogLine)]


async def test_an_array_as_fluent_bit_posts_it(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    answer = await app.post("/logs", json=[entry("one", logtag="F"), entry("two", log_processed={"a": 1})])
    assert (answer.status_code, answer.json()) == (200, {"success": True, "accepted": 2, "rejected": []})
    first, second = lines_of(app)
    assert (first.text, second.text, first.stream) == ("one", "two", "stdout")
    assert first.event_time == 1234567890.123456
    origin = first.origin
    assert (origin.pod_name, origin.namespace, origin.pod_uid) == ("trainer-0", "ml", "11-22")
    assert (origin.node, origin.container) == ("node-7", "pytorch")
    assert origin.labels["training.kubeflow.org/job-name"] == "job-1"
    assert second.origin is origin


@pytest.mark.parametrize("path", ["/logs", "/api/v1/logs", "/v1/logs"])
async def test_every_path_of_the_seeds(ingest_app: Make, path: str) -> None:
    assert (await ingest_app(Logs).post(path, json=[entry("x")])).status_code == 200


async def test_one_object_a_line_and_a_single_object(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    body = "\n".join(json.dumps(entry(text)) for text in ("one", "two"))
    assert (await app.post("/logs", content=body)).json()["accepted"] == 2
    assert (await app.post("/logs", content=json.dumps(entry("three"), indent=1).replace("\n", " "))).status_code == 200
    assert [line.text for line in lines_of(app)] == ["one", "two", "three"]


async def test_log_and_msg_stand_in_for_message(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    bodies = [
        {"log": "a\n", "pod_name": "p"},
        {"msg": "b", "pod_name": "p"},
        {"message": "", "log": "c", "pod_name": "p"},
    ]
    await app.post("/logs", json=bodies)
    assert [line.text for line in lines_of(app)] == ["a", "b", "c"]


async def test_identity_may_stand_in_the_entry_or_in_the_query(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    await app.post("/logs", json=[{"message": "a", "workload_uid": "w1", "rank": 3, "hostname": "n1"}])
    await app.post("/logs?workload_uid=w2&rank=5", json=[{"message": "b"}])
    answer = await app.post("/logs?pod_name=p3", content="c\nd", headers={"content-type": "text/plain"})
    assert answer.json()["accepted"] == 2
    origins = [(line.origin.workload_uid, line.origin.pod_name, line.origin.rank) for line in lines_of(app)]
    assert origins == [("w1", "", 3), ("w2", "", 5), ("", "p3", None), ("", "p3", None)]


async def test_what_is_known_of_a_pod_is_filled_in_once_for_all_its_lines(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    app.source.context.directory.add_pods([Pod(uid="u-1", name="p", namespace="ns", node="node-9")])
    bodies = [{"message": "a", "pod_name": "p"}, {"message": "b", "pod_name": "p"}, {"message": "c", "pod_name": "q"}]
    await app.post("/logs", json=bodies)
    first, second, other = (line.origin for line in lines_of(app))
    assert (first.pod_uid, first.namespace, first.node, first.cluster) == ("u-1", "ns", "node-9", "default")
    assert second is first
    assert (other.pod_uid, other.cluster) == ("", "default")
    assert 'log_consume_latency_seconds_count{node="node-9"}' not in app.metrics.exposition().decode()  # no times


async def test_lines_of_several_pods_in_turn_and_what_an_entry_says_beside_its_pod(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    other = KUBERNETES | {"pod_name": "trainer-1", "pod_id": "33", "host": "node-8"}
    own = entry("e", workload_uid="w", rank=5)
    await app.post("/logs", json=[entry("a"), entry("b", kubernetes=other), entry("c"), own, entry("d")])
    first, second, third, with_own, last = (line.origin for line in lines_of(app))
    assert first is third is last
    assert (second.pod_name, second.node) == ("trainer-1", "node-8")
    assert (with_own.pod_name, with_own.workload_uid, with_own.rank) == ("trainer-0", "w", 5)
    assert (first.workload_uid, first.rank) == ("", None)
    text = app.metrics.exposition().decode()
    assert 'log_consume_latency_seconds_count{node="node-7"} 4.0' in text
    assert 'log_consume_latency_seconds_count{node="node-8"} 1.0' in text


async def test_bad_entries_lose_no_neighbour(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    body = [entry("a"), 5, {"message": "no identity"}, {"kubernetes": KUBERNETES}, entry("b"), {"message": [1]}]
    answer = (await app.post("/logs", json=body)).json()
    assert answer["accepted"] == 2
    assert [item["index"] for item in answer["rejected"]] == [1, 2, 3, 5]
    assert [line.text for line in lines_of(app)] == ["a", "b"]
    assert (app.gate.received, app.gate.rejected) == (6, 4)


async def test_a_broken_line_among_lines(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    body = "\n".join([json.dumps(entry("a")), "{broken", json.dumps(entry("b"))])
    answer = (await app.post("/logs", content=body)).json()
    assert (answer["accepted"], [item["index"] for item in answer["rejected"]]) == (2, [1])


async def test_bytes_that_are_no_utf8_are_kept_as_far_as_they_can_be(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    body = json.dumps([entry("loss \x01 MARK")]).encode().replace(b"MARK", b"\xff\xfe")
    assert (await app.post("/logs", content=body)).status_code == 200
    assert lines_of(app)[0].text.startswith("loss \x01 ")


@pytest.mark.parametrize("body", [b"hello", b'{"message": "x"}', b'[{"message": "x"}]', b"[1]"])
async def test_what_cannot_be_used_at_all_is_refused(ingest_app: Make, body: bytes) -> None:
    answer = await ingest_app(Logs).post("/logs", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "RequestParameterInvalid")


async def test_a_refusal_names_the_first_entry_that_is_wrong(ingest_app: Make) -> None:
    body = [{"kubernetes": KUBERNETES}, 5]
    answer = await ingest_app(Logs).post("/logs", json=body)
    assert answer.json()["message"] == "entry 0: no_message"


async def test_nothing_to_say_is_fine(ingest_app: Make) -> None:
    assert (await ingest_app(Logs).post("/logs", content=b"[]")).status_code == 200


async def test_container_runtime_lines_are_opened_and_parts_marked(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    raw = "2026-05-18T16:04:46.339001234Z stderr P step: 14  lo"
    await app.post("/logs", json=[{"log": raw, "pod_name": "p"}, entry("rest", logtag="P")])
    first, second = lines_of(app)
    assert (first.text, first.source, second.source) == ("step: 14  lo", "log_partial", "log_partial")
    assert first.event_time == pytest.approx(1779120286.339001)


async def test_long_lines_are_cut_and_lenses_own_are_left_out(tmp_path: Path) -> None:
    source = Logs(LogsSettings(max_line_bytes=1024), make_context("logs", tmp_path))
    source.gate = gate = RecordingGate()
    own = entry("x") | {"kubernetes": {"pod_name": "primus-lens-telemetry-processor-5d"}}
    body = json.dumps([entry("ä" * 5000), own]).encode()
    (route,) = source.routes()
    await route.handler(IngestRequest(body=body, path="/logs", method="POST", headers={}, query={}))
    (line,) = gate.records
    assert isinstance(line, LogLine)
    assert line.text == "ä" * 512
    assert (gate.received, gate.filtered) == (2, 1)


async def test_the_age_of_lines_is_measured_by_node(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    await app.post("/logs", json=[entry("x"), entry("y")])
    text = app.metrics.exposition().decode()
    assert 'log_consume_latency_seconds_count{node="node-7"} 2.0' in text
    assert 'log_consume_latency_histogram_seconds_count{node="node-7"} 2.0' in text


async def test_a_shut_door_is_told(ingest_app: Make) -> None:
    app = ingest_app(Logs)
    app.gate.closed = True
    assert (await app.post("/logs", json=[entry("x")])).status_code == 503


async def test_the_contract_of_a_source(tmp_path: Path) -> None:
    source = Logs(LogsSettings(), make_context("logs", tmp_path))
    body = json.dumps([entry("one"), entry("two")]).encode()
    await check_source(source, [IngestRequest(body=body, path="/logs", method="POST", headers={}, query={})])


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [
        (1234567890.123, 1234567890.123),
        ("1234567890.123", 1234567890.123),
        (1234567890123, 1234567890.123),
        (1234567890123456789, 1234567890.123457),
        ("2026-05-18T16:04:46.339001234Z", 1779120286.339001),
        ("2026-05-18T18:04:46+02:00", 1779120286.0),
        ("2026-05-18 16:04:46.5", 1779120286.5),
        ("yesterday", None),
        (-1, None),
        (float("nan"), None),
        (None, None),
    ],
)
def test_times_in_whatever_form(printed: float | str | None, seconds: float | None) -> None:
    found = seconds_of(printed)
    assert found is None if seconds is None else found == pytest.approx(seconds, abs=1e-6)
