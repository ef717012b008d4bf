"""A job whose hook and whose tracking server both reach Lens: every row is answered once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.running_lens import RunningLens, ledgers_add_up, wait_for
from tests.plugins.collectors.mlflow.tracking_server import real_server

SCRIPT = """
    import mlflow
    mlflow.set_experiment("night")
    with mlflow.start_run(run_name="calm", tags={"lens.workload_uid": "job"}) as run:
        for step in range(20):
            mlflow.log_metrics({"loss": 1 / (step + 1), "lr": 0.1}, step=step)
            mlflow.log_metric("counted", step)
    print(run.info.run_id, flush=True)
"""


@pytest.mark.slow("starts a tracking server")
def test_the_hook_and_the_server_have_the_same_run(lens_on: Callable[..., RunningLens], tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with real_server(tmp_path) as server:
        lens = lens_on(f"collectors:\n  runs: {{type: mlflow, url: '{server.url}', interval_seconds: 0.5}}\n")
        hooked = {
            "PRIMUS_LENS_API_BASE_URL": f"{lens.url}/api/v1",
            "WORKLOAD_UID": "job",
            "MLFLOW_TRACKING_URI": server.url,
            "RANK": "0",
        }
        done = server.environment.run(SCRIPT, work, hooked)
        run_id = done.stdout.split()[-1]

        def both() -> bool:
            runs = lens.get("/workloads/job")["runs"]
            return [run["rows"] for run in runs] == [20, 20]

        wait_for(both, what="the run from both")
        ledgers_add_up(lens.drained())
    runs = lens.get("/workloads/job")["runs"]
    assert [(run["run_id"], run["data_source"]) for run in runs] == [(run_id, "mlflow")] * 2
    for asked in ({}, {"data_source": "mlflow"}):
        found = Counter((one["metric_name"], one["iteration"]) for one in lens.points("job", **asked))
        assert found == Counter([(name, step) for name in ("loss", "lr", "counted") for step in range(20)])
    evidence = lens.get("/workloads/job/detection")["evidence"]
    urls = {one["facts"]["tracker"].get("url") for one in evidence if "tracker" in one["facts"]}
    assert f"{server.url}/#/experiments/1/runs/{run_id}" in urls
