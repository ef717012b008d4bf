"""The framework of a workload: from the hook's evidence, from log lines, from people; kept over a restart."""

from __future__ import annotations

from typing import Any

from tests.end_to_end.running_lens import RunningLens, http_post, http_put, wait_for

# Seed 000, appendix A.1.
SEED_EVIDENCE: dict[str, Any] = {
    "wandb": {
        "project": "my-training",
        "name": "run-001",
        "id": "wandb-run-id",
        "config": {"framework": "primus", "base_framework": "megatron"},
        "tags": ["distributed", "gpu"],
    },
    "environment": {"PRIMUS_CONFIG": "/c.yaml", "PRIMUS_BACKEND": "megatron", "WORLD_SIZE": "8", "RANK": "0"},
    "pytorch": {
        "available": True,
        "version": "2.1.0",
        "detected_modules": {"deepspeed": False, "megatron": True, "transformers": True, "lightning": False},
    },
    "wrapper_frameworks": {"primus": {"detected": True, "version": "1.0.0", "base_framework": "megatron"}},
    "base_frameworks": {"megatron": {"detected": True, "version": "unknown"}},
}

LINE = (
    " iteration      126/    5000 | consumed samples:        16128 | elapsed time per iteration (ms): 13372.8 |"
    " learning rate: 9.984820E-06 | global batch size:   128 | lm loss: 6.548988E-03 | loss scale: 1.0 |"
    " grad norm: 0.061 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)


def verdict(lens: RunningLens, uid: str) -> dict[str, Any]:
    found: dict[str, Any] = lens.get(f"/workloads/{uid}/detection")
    return found


def test_the_seeds_example_is_primus_over_megatron_and_a_person_has_the_last_word(lens: RunningLens) -> None:
    sent = {"source": "wandb", "workload_uid": "abc-123", "pod_name": "training-pod-0", "evidence": SEED_EVIDENCE}
    answer = lens.post("/wandb/detection", sent).json()
    assert (answer["workload_uids"], answer["framework"], answer["confidence"]) == (["abc-123"], "primus", 0.9)
    lens.drained()
    found = verdict(lens, "abc-123")
    assert (found["wrapper_framework"], found["base_framework"], found["status"]) == ("primus", "megatron", "confirmed")
    assert (found["framework_layer"], found["workload_type"], found["conflicts"]) == ("wrapper", "training", [])

    lens.kill()
    lens.start()
    assert verdict(lens, "abc-123") == found

    for framework in ("nemo", "deepspeed"):
        stated = http_put(f"{lens.url}/api/v1/workloads/abc-123/detection", json={"base_framework": framework})
        assert stated.status_code == 200
        said = verdict(lens, "abc-123")  # who asks next finds what was said
        assert {"success": True, **said} | stated.json() == {"success": True, **said}
        assert said["base_framework"] == framework
        assert said["wrapper_framework"] == "primus"


def test_a_stated_detection_that_says_nothing_is_400(lens: RunningLens) -> None:
    for wrong in ({}, {"framework": 5}, {"framework": "x", "confidence": 2}, {"framwork": "x"}):
        answer = http_put(f"{lens.url}/api/v1/workloads/w/detection", json=wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, "RequestParameterInvalid")


def test_a_log_line_becomes_a_step_and_an_opinion_and_nobody_knows_is_unknown(lens: RunningLens) -> None:
    kubernetes = {"pod_name": "p-0", "namespace_name": "team", "pod_id": "uid-0", "host": "n"}
    entry = {"date": 1_700_000_000.5, "stream": "stdout", "logtag": "F", "message": LINE, "kubernetes": kubernetes}
    assert http_post(f"{lens.url}/logs", json=[entry]).json()["accepted"] == 1
    points = wait_for(lambda: lens.points("uid-0", metrics="lm_loss"), what="the loss")
    assert (points[0]["iteration"], points[0]["value"], points[0]["data_source"]) == (126, 6.548988e-03, "log")
    assert points[0]["timestamp"] == 1_700_000_000_500
    found = verdict(lens, "uid-0")
    assert (found["framework"], found["sources"]) == ("megatron", ["log"])
    times = lens.get("/workloads/uid-0/metrics/iteration-times")["data"]
    assert [(point["metric_name"], point["value"]) for point in times] == [
        ("iteration", 126),
        ("target_iteration", 5000),
    ]
    assert verdict(lens, "nobody")["status"] == "unknown"
