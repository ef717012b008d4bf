"""The extremes of every field of every record, to every route: refused in words or stored, and all stored is read."""

from __future__ import annotations

import json
import math
import urllib.parse
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import httpx
import msgspec
import pytest

from lens_core.records import RECORD_KINDS
from lens_core.testing import LensFactory, RunningLens
from lens_core.testing.waiting import until

INTEGERS = (0, -1, -5, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30)
FLOATS = (
    0.0,
    -1.0,
    1e-320,
    1.7e9,
    1.7e12,
    1e17,
    1e300,
    -1e300,
    math.nan,
    math.inf,
    -math.inf,
    253402300799.0,
    -62135596800.0,
)
TEXTS = ("", "a\x00b", "\x1b[31m", "é" * 200, "n" * 5000, "%", "'; drop table x; --", "\u202e", "😀", " ", "a/b?c=d&e")
FACTS: tuple[Any, ...] = (
    {},
    {"a": 10**30},
    {"a": {"b": [None, True, math.nan, "\x00"]}},
    {"\x00": 1},
    {"wandb": 5, "environment": [], "pytorch": "x", "system": None},
    {"wandb": {"id": 5, "project": [], "config": 3, "tags": {}}, "environment": {"A": 5}},
)
LEGAL: dict[str, dict[str, Any]] = {
    "step_metrics": {"data_source": "wandb", "row_step": 1, "values": {"loss": 1.0}},
    "measurement": {"name": "m", "value": 1.0},
    "series_batch": {"body": ""},
    "log_line": {"text": "iteration 1/ 10 | lm loss: 1.0"},
    "evidence": {"source": "wandb", "facts": {}},
    "detection": {"source": "wandb", "framework": "megatron", "layer": "base", "confidence": 0.5, "method": "import"},
    "event": {"type": "training_started"},
    "pod": {"uid": "p", "name": "p"},
    "diagnosis": {"data_type": "XPU_TIMER_METRIC", "data_content": "a 1"},
}


def records() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, field and record, each with that field extreme, under a few workloads."""
    number = 0
    for kind, legal in LEGAL.items():
        for field in msgspec.structs.fields(RECORD_KINDS[kind]):
            for value in (*INTEGERS, *FLOATS, *TEXTS, *FACTS, None, [], {"a": 1.0}, {"n" * 3000: math.nan}):
                number += 1
                origin = {"workload_uid": f"w{number % 30}", "pod_name": f"pod{number % 40}"}
                yield kind, field.name, {"record": kind, "origin": origin, **legal, field.name: value}
    for name in ("rank", "local_rank", "node_rank", "world_size", *("labels", "workload_uid", "cluster", "namespace")):
        for value in (*INTEGERS, *TEXTS, {"a": "b"}, {str(number): "b" for number in range(2000)}):
            for kind in ("step_metrics", "event", "evidence"):
                where: dict[str, Any] = {"workload_uid": "of origins", name: value}
                yield "origin", name, {"record": kind, **LEGAL[kind], "origin": where}


def wandb_bodies() -> Iterator[tuple[str, Any]]:
    """Bodies of the wandb routes and of logs with one field that is extreme."""
    extremes: tuple[Any, ...] = (*INTEGERS, *FLOATS, *TEXTS, None, [], {}, True)
    for value in extremes:
        who = {"workload_uid": "extremes", "run_id": "r"}
        for field in ("step", "timestamp", "value", "name", "tags"):
            metric = {"name": "loss", "value": 1.0, "step": 3, field: value}
            yield "/wandb/metrics", {**who, "metrics": [metric, {"name": "fine", "value": 1.0, "step": 1}]}
        for field in ("step", "timestamp", "data"):
            yield "/wandb/logs", {**who, "logs": [{"step": 3, "data": {"loss": value}, field: value}]}
        for field in ("workload_uid", "pod_uid", "pod_name", "namespace", "run_id", "timestamp"):
            yield "/wandb/metrics", {**who, field: value, "metrics": [{"name": "a", "value": 1.0}]}
            yield "/wandb/detection", {**who, field: value, "evidence": {}}
        for field in (
            "date",
            "timestamp",
            "message",
            "stream",
            "logtag",
            "rank",
            "pod_name",
            "workload_uid",
            "kubernetes",
        ):
            entry = {"workload_uid": "extremes", "message": " iteration 5/ 10 | lm loss: 1.0 |", field: value}
            yield "/logs", [entry]
    for facts in FACTS:
        yield "/wandb/detection", {"workload_uid": "extremes", "evidence": facts, "hints": facts}
        yield "/wandb/batch", {"detection": facts, "metrics": facts, "logs": facts}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _pack(value: Any) -> bytes | None:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, ValueError):
        return None


async def _send_all(client: httpx.AsyncClient) -> None:
    """All records, those with the same field in one body; a wrong one must lose no other of them."""
    accepted = 0
    for _, group in groupby(records(), key=lambda found: found[:2]):
        batch = [record for _, _, record in group]
        packable = [record for record in batch if _pack(record) is not None]
        for body, content_type in (
            (_json({"records": batch}), "application/json"),
            (_pack({"records": packable}) or b"", "application/msgpack"),
        ):
            answer = await client.post("/records", content=body, headers={"Content-Type": content_type})
            assert answer.status_code in (200, 503), (batch[0], answer.text)
            accepted += answer.json()["accepted"]
    assert accepted > 100
    alone: dict[str, Any] = {"record": "step_metrics", **LEGAL["step_metrics"], "origin": {"workload_uid": "w"}}
    for value in INTEGERS:
        answer = await client.post("/records", content=_json({"records": [{**alone, "row_step": value}]}))
        assert answer.status_code == (200 if -(2**63) <= value < 2**63 else 400), (value, answer.text)
    for path, body in wandb_bodies():
        answer = await client.post(path, content=_json(body))
        assert answer.status_code in (200, 400, 503), (path, body, answer.text)


def _drained(running: RunningLens) -> bool:
    status = running.daemon.status()
    return all(sink.pending_records == 0 for pipeline in status.pipelines for sink in pipeline.sinks)


async def _read_all(client: httpx.AsyncClient) -> None:
    """Every route that answers of a workload, for every workload that the list has; the list in all its pages."""
    listed: list[str] = []
    cursor = ""
    while True:
        answer = await client.get("/workloads", params={"limit": 50, **({"cursor": cursor} if cursor else {})})
        assert answer.status_code == 200, answer.text
        listed += [workload["workload_uid"] for workload in answer.json()["workloads"]]
        cursor = answer.json().get("next_cursor") or ""
        if not cursor:
            break
    assert "extremes" in listed
    assert (await client.get("/overview")).status_code == 200
    below: tuple[str, ...] = (
        "",
        "/detection",
        "/events",
        "/diagnosis",
        "/metrics/sources",
        "/metrics/available",
        "/metrics/data",
    )
    below += ("/metrics/rows", "/metrics/iteration-times", "/metrics/data?max_points=10", "/metrics/data?format=arrow")
    below += ("/metrics/data?aggregate=mean&interval=1h", "/metrics/data?limit=1", "/metrics/data?format=csv")
    for uid in listed:
        for path in below:
            answer = await client.get(f"/workloads/{urllib.parse.quote(uid, safe='')}{path}")
            assert answer.status_code in (200, 400, 404), (uid, path, answer.text)


@pytest.mark.slow("sends extremes of every field of every record to every route, and reads all of it back")
async def test_extremes_are_refused_or_stored_and_read(lens: LensFactory) -> None:
    running = await lens(store=True)
    async with httpx.AsyncClient(base_url=f"{running.url}/api/v1", timeout=60) as client:
        await _send_all(client)
        await until(lambda: _drained(running), "all is delivered", seconds=120)
        await _read_all(client)
    letters = {sink.name: sink.ledger.rejected for pipe in running.daemon.status().pipelines for sink in pipe.sinks}
    assert not letters["store"].get("poisoned"), letters
