"""Lines that mean something together: a best round told again is no new attempt; a table joins the step above it."""

from __future__ import annotations

import pytest

from lens_core import StepMetrics
from tests.lens_core.detection.log_lines.stand import Stand, megatron, of

LIGHTGBM = (
    "[10]\ttraining's l2: 0.5\tvalid_1's l2: 0.6",
    "[20]\ttraining's l2: 0.4\tvalid_1's l2: 0.7",
    "Early stopping, best iteration is:",
    "[11]\ttraining's l2: 0.49\tvalid_1's l2: 0.59",
)
XGBOOST = ("[10]\ttrain-rmse:0.5", "[20]\ttrain-rmse:0.4", "Stopping. Best iteration:", "[11]\ttrain-rmse:0.49")


@pytest.mark.parametrize("lines", [LIGHTGBM, XGBOOST], ids=["lightgbm", "xgboost"])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_best_round_is_no_new_attempt(stand: Stand, lines: tuple[str, ...], restarts: bool) -> None:
    rows = []
    for line in lines:
        rows += of(StepMetrics, stand.feed(line))
        if restarts:
            stand.restart()
    assert [(row.attempt, row.row_step) for row in rows] == [(1, 10), (1, 20)]
    again = of(StepMetrics, stand.feed(lines[0]))  # a training that begins again after it is one
    assert [(row.attempt, row.row_step) for row in again] == [(2, 10)]


def test_the_rows_of_a_table_join_the_step_above_it(stand: Stand) -> None:
    steps = [
        "StatsLogger INFO: Epoch 1/2 Step 1/23 Train step 1/46 done.",
        "╒══════════════════════════╤════════════╕",
        "│ rollout/reward           │ 5.0000e-01 │",
        "├──────────────────────────┼────────────┤",
        "│ ppo_actor/update/lr      │ 2.0000e-06 │",
        "╘══════════════════════════╧════════════╛",
        "StatsLogger INFO: Epoch 1/2 Step 2/23 Train step 2/46 done.",
        "│ rollout/reward           │ 7.5000e-01 │",
    ]
    rows = of(StepMetrics, stand.feed(*steps))
    reported = {row.row_step: dict(row.values) for row in rows}
    assert reported[1]["rollout/reward"] == 0.5
    assert reported[1]["learning_rate"] == 2e-6
    assert reported[2]["rollout/reward"] == 0.75
    assert {row.attempt for row in rows} == {1}


def test_steps_of_a_deleted_job_that_are_told_again_are_new(stand: Stand) -> None:
    assert of(StepMetrics, stand.feed(megatron(1)))
    assert of(StepMetrics, stand.feed(megatron(1))) == []
    stand.processor.end_jobs(lambda origin: False)
    assert of(StepMetrics, stand.feed(megatron(1))) == []
    stand.processor.end_jobs(lambda origin: True)
    assert [row.row_step for row in of(StepMetrics, stand.feed(megatron(1)))] == [1]
