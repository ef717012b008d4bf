"""Pods that the directory learns late attach stored data; data of forgotten pods stays attached."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.end_to_end.running_lens import RunningLens, http_get, http_post, wait_for

POD = """
pods:
  - uid: u-1
    name: llama-0
    namespace: ml
    phase: Running
    workloads: [{uid: w-1, name: llama, parent_uid: w-0}, {uid: w-0, name: llama}]
"""


def losses(lens: RunningLens, workload: str) -> list[float]:
    answer = http_get(f"{lens.url}/api/v1/workloads/{workload}/metrics/data", params={"metrics": "loss"}).json()
    return [point["value"] for point in answer["data"]]


def log(lens: RunningLens, step: int, **origin: str) -> None:
    body: dict[str, Any] = {**origin, "run_id": "r", "logs": [{"step": step, "data": {"loss": step / 2}}]}
    http_post(f"{lens.url}/api/v1/wandb/logs", json=body).raise_for_status()


def test_data_before_and_after_the_pod_is_known(lens_on: Callable[..., RunningLens], tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text("pods: []\n")
    collectors = f"collectors:\n  file: {{type: directory_file, path: {file}, interval_seconds: 0.2}}\n"
    lens = lens_on(collectors)
    log(lens, 1, pod_uid="u-1", pod_name="llama-0", namespace="ml")
    log(lens, 2, pod_name="llama-0", namespace="ml")
    file.write_text(POD)
    os.utime(file, (1, 1))
    wait_for(lambda: losses(lens, "w-1") == [0.5, 1.0], what="the rows from before")
    assert losses(lens, "w-0") == [0.5, 1.0]
    assert http_get(f"{lens.url}/pods/workload/cache").json() == {"llama-0": [["llama", "w-1"], ["llama", "w-0"]]}
    file.write_text("pods: []\n")
    os.utime(file, (2, 2))
    log(lens, 3, pod_uid="u-1")
    wait_for(lambda: losses(lens, "w-1") == [0.5, 1.0, 1.5], what="the row from after")
    assert lens.stop() == 0
    lens.start()
    assert losses(lens, "w-1") == [0.5, 1.0, 1.5]
