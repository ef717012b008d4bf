"""Lines of loops that people wrote themselves, read without a format, and lines that only look like them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Detector, LogFormat
from lens_core.testing import check_detector, read_line
from plugins.detectors.common_loops import CommonLoops
from plugins.detectors.generic import Generic
from plugins.detectors.plain_loop import PlainLoop


def test_the_contract_of_a_detector() -> None:
    check_detector(PlainLoop)


@pytest.mark.parametrize(
    ("line", "iteration", "values"),
    [
        ("step 100/1000, loss: 2.5, lr: 0.0003", 100, {"lm_loss": 2.5, "learning_rate": 0.0003}),
        ("[2024-05-01 12:00:00,123][root][INFO] - Step 7 | loss 2.5 | grad norm 1.5", 7, {"grad_norm": 1.5}),
        ("Training Step 10 - loss: 1.25", 10, {"lm_loss": 1.25}),
        ("08/25/2024 10:00:00 - INFO - __main__ - Step: 9, LR: 0.5, Loss: 1.25", 9, {"learning_rate": 0.5}),
        ("[12:00:01] step=40 loss=1.25 tokens/sec=1,234", 40, {"lm_loss": 1.25, "tokens/sec": 1234.0}),
        ("global step 5 of 50: loss=1.5", 5, {"lm_loss": 1.5}),
        ("INFO:root:[rank0] iteration 100 loss 2.5", 100, {"lm_loss": 2.5}),
    ],
)
def test_a_step_in_many_hands(line: str, iteration: int, values: dict[str, float]) -> None:
    (reading,) = read_line(PlainLoop, line)
    assert reading.iteration == iteration
    assert {name: reading.values[name] for name in values} == values


def test_steps_that_are_counted_within_an_epoch() -> None:
    (reading,) = read_line(PlainLoop, "Epoch [2/10], Step [100/600], Loss: 0.125")
    assert (reading.values["epoch"], reading.values["step_in_epoch"], reading.values["lm_loss"]) == (2.0, 100.0, 0.125)


@pytest.mark.parametrize(
    "line",
    [
        "step 2000: train loss 2.1234, val loss 2.2345",
        "Step 20: eval_loss 1.25",
        "step 100 of 500, loss of signal",
        "Step 3 failed with loss of signal",
        "the step 3 loss is 4",
        "Epoch [1/10], Step [1/6], Test Loss: 0.5",
    ],
)
def test_what_only_looks_like_a_step(line: str) -> None:
    assert not [reading for reading in read_line(PlainLoop, line) if reading.joins != "evaluates"]


@given(
    step=st.integers(0, 10**9),
    loss=st.floats(0, 1e6).map(lambda number: f"{number:.4f}"),
    join=st.sampled_from([" | ", ", ", " - ", "  ", "; "]),
    tie=st.sampled_from([": ", "=", " = ", " "]),
    order=st.permutations(["loss", "lr", "acc"]),
)
def test_separators_and_order_are_free(step: int, loss: str, join: str, tie: str, order: list[str]) -> None:
    values = {"loss": loss, "lr": "0.001", "acc": "0.5"}
    (reading,) = read_line(PlainLoop, f"step {step}{join}" + join.join(f"{key}{tie}{values[key]}" for key in order))
    assert (reading.iteration, reading.values["lm_loss"]) == (step, float(loss))
    assert (reading.values["learning_rate"], reading.values["acc"]) == (0.001, 0.5)


OF_FIXED_FORM = [(kind, form) for kind in (CommonLoops, Generic) for form in kind.formats]


@pytest.mark.parametrize(("kind", "form"), OF_FIXED_FORM, ids=[form.name for _, form in OF_FIXED_FORM])
def test_no_loop_has_a_form_of_its_own_that_is_read_as_well_without(kind: type[Detector], form: LogFormat) -> None:
    (own, *_) = read_line(kind, form.example)
    plain = [(reading.iteration, reading.values, reading.joins) for reading in read_line(PlainLoop, form.example)]
    assert (own.iteration, own.values, own.joins) not in plain
