"""Lines that belong together: a step's block, the steps of an epoch, and what sums one up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lens_core import Detection, StepMetrics
from lens_core.model.processing import Processed
from tests.lens_core.detection.log_lines.stand import Stand, of


@pytest.mark.parametrize(
    ("lines", "framework"),
    [
        (
            (
                "[batch=1/100]:",
                "\t Train loss/train/total: 10.5",
                "\t Train throughput/device/tokens_per_sec: 22.5",
                "\t Eval metrics/eval/LanguageCrossEntropy: 9.0",
                "[batch=2/100]:",
                "\t Train loss/train/total: 10.25",
            ),
            "composer",
        ),
        (
            (
                "2026-08-08 12:01:00 INFO [olmo_core.train.callbacks.console_logger:68] [step=1/100,epoch=0,eta=5h11m]",
                "    train/CE loss=10.5",
                "    throughput/device/TPS=22.5",
                "2026-08-08 12:02:00 INFO [olmo_core.train.callbacks.console_logger:68] [step=2/100,epoch=0,eta=5h10m]",
                "    train/CE loss=10.25",
            ),
            "olmo",
        ),
    ],
)
def test_a_block_of_lines_is_one_step(stand: Stand, lines: Sequence[str], framework: str) -> None:
    done = stand.feed(*lines)
    found = {row.row_step: (row.values["lm_loss"], row.values.get("tokens_per_gpu")) for row in of(StepMetrics, done)}
    assert found == {1: (10.5, 22.5), 2: (10.25, None)}
    assert framework in {item.framework for item in of(Detection, done)}


def rows_of(done: Processed) -> dict[tuple[int | None, int], float]:
    """The loss of each attempt and step."""
    return {(row.attempt, row.row_step): row.values["lm_loss"] for row in of(StepMetrics, done)}


def test_steps_without_an_epoch_are_of_the_one_announced_above(stand: Stand) -> None:
    bar = "{step}/10 ━━━━━━━━━━━━━━━━━━━━ 1s 3ms/step - accuracy: 0.5 - loss: {loss}"
    first = stand.feed("Epoch 1/2", bar.format(step=5, loss=2.0), bar.format(step=10, loss=1.5))
    stand.restart()
    second = stand.feed("Epoch 2/2", bar.format(step=5, loss=1.25), bar.format(step=10, loss=1.0))
    assert rows_of(first) == {(1, 5): 2.0, (1, 10): 1.5}
    assert rows_of(second) == {(1, 15): 1.25, (1, 20): 1.0}


def test_a_loop_that_prints_epochs_only_has_a_row_for_each(stand: Stand) -> None:
    done = stand.feed(*(f"Epoch {epoch}/3, Train Loss: {1 / epoch}, Val Loss: 2.0" for epoch in (1, 2, 4)))
    assert rows_of(done) == {(1, 1): 1.0, (1, 2): 0.5, (1, 4): 0.25}


def test_what_sums_up_an_epoch_is_no_step_beside_steps(stand: Stand) -> None:
    done = stand.feed(
        "Epoch [1/3], Step [1/2], Loss: 3.0", "Epoch [1/3], Step [2/2], Loss: 2.0", "Epoch 1/3, Loss: 2.5"
    )
    assert rows_of(done) == {(1, 1): 3.0, (1, 2): 2.0}
