"""A deleted workload does not come back: not from a spool, a dead letter or the directory, nor after a kill -9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.end_to_end.running_lens import PLAIN, RunningLens, ledgers_add_up, metrics_body

MakeLens = Callable[..., RunningLens]

# The store's batch is sent once it is full or an hour old, the other Lens is away: both leave rows in the spool.
CONFIG = """
sinks:
  store: {{type: postgresql, limits: {{max_wait_seconds: 3600}}}}
  onward: {{type: http, url: "http://127.0.0.1:{port}/api/v1/records"}}
"""


def delete(lens: RunningLens, path: str, **parameters: str) -> dict[str, Any]:
    answer = httpx.delete(f"{lens.url}/api/v1/workloads/{path}", params=parameters, timeout=240, verify=PLAIN)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.slow("starts two daemons, one of them three times")
def test_rows_that_wait_go_with_their_workload(make_lens: MakeLens) -> None:
    receiver = make_lens(name="receiver").start()
    port = receiver.url.rpartition(":")[2]
    receiver.kill()
    lens = make_lens(CONFIG.format(port=port), name="sender").start()
    for workload in ("gone", "kept"):
        for run in ("r1", "r2"):
            assert lens.post("/wandb/metrics", metrics_body(workload, range(5), run_id=run)).status_code == 200
    told = {"pods": [{"uid": "pod-1", "name": "q", "namespace": "n", "workloads": [{"uid": "gone", "name": "gone"}]}]}
    assert httpx.patch(f"{lens.url}/api/v1/directory", json=told, timeout=240).status_code == 200
    body = {**metrics_body("", range(3)), "pod_uid": "pod-1", "pod_name": "q"}
    assert lens.post("/wandb/metrics", body).status_code == 200

    removed = delete(lens, "gone")
    assert removed["waiting_removed"] >= 13  # ten rows of its own, three of its pod
    assert delete(lens, "kept/runs", run_id="r1")["waiting_removed"] == 5
    assert "gone" not in str(lens.get("/directory"))
    for workload, steps in (("gone", range(100, 102)), ("kept", range(100, 102))):
        assert lens.post("/wandb/metrics", metrics_body(workload, steps, run_id="r1")).status_code == 200

    lens.kill()
    lens.start()
    assert "gone" not in str(lens.get("/directory"))
    receiver.start(listen=f"127.0.0.1:{port}")
    assert lens.stop() == 0  # stopping flushes the store's batch as well
    lens.start()
    status = lens.drained(120)
    ledgers_add_up(status)
    receiver.drained()
    for one in (lens, receiver):
        found = {run: steps_of(one, "gone", run) for run in ("r1", "r2")}
        assert found == {"r1": [100, 101], "r2": []}
        found = {run: steps_of(one, "kept", run) for run in ("r1", "r2")}
        assert found == {"r1": [100, 101], "r2": list(range(5))}
        assert steps_of(one, "pod-1", "r") == []


def steps_of(lens: RunningLens, workload: str, run_id: str) -> list[int]:
    return sorted(point["iteration"] for point in lens.points(workload, metrics="m0", run_id=run_id))
