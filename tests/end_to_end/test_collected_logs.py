"""A log file that the daemon follows by itself: every step once, also over a kill -9."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.running_lens import RunningLens, wait_for

LINE = (
    "iteration {:8d}/    5000 | elapsed time per iteration (ms): 372.8 | learning rate: 9.98E-06 | lm loss: {:.6E} |\n"
)


@pytest.mark.slow("kills and restarts a daemon while a log grows")
def test_a_followed_log_gives_every_step_once(make_lens: Callable[..., RunningLens], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("".join(LINE.format(step, step / 7) for step in range(1, 301)))
    lens = make_lens(f"collectors: {{files: {{type: training_log, paths: ['{log}']}}}}\n").start()
    uid = wait_for(lambda: [item["workload_uid"] for item in lens.get("/workloads")["workloads"]], 240, "a workload")[0]
    wait_for(lambda: len(lens.points(uid, metrics="lm_loss")) == 300, 240, "300 steps")
    lens.kill()
    with log.open("a") as file:
        file.writelines(LINE.format(step, step / 7) for step in range(301, 351))
    lens.start()
    wait_for(lambda: len(lens.points(uid, metrics="lm_loss")) == 350, 240, "350 steps")
    points = lens.points(uid, metrics="lm_loss")
    assert [point["iteration"] for point in points] == list(range(1, 351))
    assert {point["attempt"] for point in points} == {1}
    received = [source["received"] for source in lens.get("/status")["sources"] if source["name"] == "files"]
    assert received[0] <= 400  # a follower that forgets its place would read the file repeatedly
