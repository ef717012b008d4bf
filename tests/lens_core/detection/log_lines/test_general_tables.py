"""Tables below any header that names a counter and a loss, and losses below lines that name their step alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core.plugin_api.components import Detector
from tests.lens_core.detection.log_lines.stand import Stand
from tests.lens_core.detection.log_lines.test_spellings import LOSS, rows_of


@pytest.fixture(scope="module")
def shared(detectors: list[Detector]) -> Stand:
    """One processor for all examples; each has a job of its own."""
    return Stand(detectors)


STEPS = st.lists(st.integers(0, 10**6), min_size=1, max_size=4, unique=True).map(sorted)
# A header of one line or two, and a row.
TABLES = (
    (["|  epoch  |  train_loss  |  val_loss  |  train_acc  |"], "|  {s}  |  {l}  |  1.2112  |  0.5612  |"),
    (["| Step | Training Loss | Validation Loss |", "|------|---------|-------|"], "| {s}  | {l}      | 2.212300   |"),
    (["│ epoch │ train loss │ time │"], "│ {s} │ {l} │ 1.2 │"),
    (["+-----+---+", "| Epoch |   time    |   Loss   |  recall  |"], "| {s} | 1016.8 | [{l}, 132.36] | [0.0321] |"),
    (
        [
            "|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Mini-batch  |",
            "|         |             |   (hh:mm:ss)   |   Accuracy   |     Loss     |",
            "|=====================================================================|",
        ],
        "|       1 |           {s} |       00:00:01 |       12.50% |       {l} |",
    ),
    (["iter   tr_logloss   va_logloss      tr_time"], "   {s}      {l}      0.47022          2.3"),
    (["[------------] Epoch      Train log_loss       Time cost (sec)"], "[   10%      ]     {s}        {l}     0.00"),
    (
        ["Itn  Dep Loss    NER Loss    UAS  ", "---  ----------  ----------  -------"],
        "  {s}    {l}     512.123   81.123",
    ),
    (["Step\tImg/sec\ttotal_loss"], "{s}\timages/sec: 251.2 +/- 0.0 (jitter = 0.0)\t{l}"),
    (
        ["[ INFO : 2024-12-24 21:51:06,518 ] - |    iter|      lr|      loss|"],
        "[ INFO : 2024-12-24 21:51:06,518 ] - | {s}| 0.1| {l}|",
    ),
    (["Iteration     Wall_Time     Samples    Critic_Loss   "], "{s}          0.0013029     4523    {l}   "),
)


@pytest.mark.parametrize(("header", "row"), TABLES)
@settings(max_examples=8, deadline=None)
@given(steps=STEPS, loss=LOSS)
def test_rows_below_a_header_are_its_steps(
    shared: Stand, header: list[str], row: str, steps: list[int], loss: str
) -> None:
    found = rows_of(shared, [*header, *(row.format(s=step, l=loss) for step in steps)])
    assert {step: values["lm_loss"] for step, values in found.items()} == dict.fromkeys(steps, float(loss))


OTHER_TABLES = (
    ("| Trial name | status | iter | total time (s) | loss |", "| train_{s} | RUNNING | {s} | 12.3 | {l} |"),
    ("| lr     | batch | epochs | val_loss |", "| 0.001  | 64    | {s}     | {l}   |"),
    ("iter      cost      cost_change  |gradient|   |step|", "   {s}  {l}    0.00e+00    1.09e+08   0.00e+00"),
    ("iter    objective    inf_pr   inf_du", "   {s}  {l} 1.12e+01 5.28e-01"),
    ("Step Temp E_pair E_mol TotEng Press", "{s} 3 {l} 0 -2.27 -3.70"),
    ("# Epoch batch         loss       loss_f", "      0    {s}         {l}         1.01"),
)


@pytest.mark.parametrize(("header", "row"), OTHER_TABLES)
@settings(max_examples=8, deadline=None)
@given(steps=STEPS, loss=LOSS)
def test_rows_of_other_tables_are_none(shared: Stand, header: str, row: str, steps: list[int], loss: str) -> None:
    assert rows_of(shared, [header, *(row.format(s=step, l=loss) for step in steps)]) == {}


# A line that names the step {s}, and lines of its numbers, the loss among them.
BLOCKS = (
    (
        "********** Iteration {s} **********",
        ["| EpRewMean            | 12.312    |", "| total_loss | {l} |"],
        "lm_loss",
    ),
    ("              Step {s}               ", ["│ optim/lr │ 0.000040 │", "│ loss │ {l} │"], "lm_loss"),
    ("2024-03-19 23:51:36,296 update: {s}\tfps: 247.014", ["loss: {l}  entropy: 0.721"], "lm_loss"),
    ("[Step {s}/2000000] [Epoch 0/30]  [data]", ["\t\tloss: {l},    time: 0.395596,    eta: 1:18:39"], "lm_loss"),
    ("Training: epoch 1[{s}/2000000], lr: [0.0001]", ["\theatmap_loss: {l}"], "heatmap_loss"),
    ("Epoch 1, Iter {s}:", ["    loss: {l}", "    acc:  0.1123"], "lm_loss"),
    ("[0610 10:23:41 @base.py:283] Epoch 1 (global_step {s}) finished, time:3 seconds.", ["loss: {l}"], "lm_loss"),
    (
        "[NeMo I 2020-04-01 10:00:00 callbacks:187] Step: {s}",
        ["[NeMo I 2020-04-01 10:00:00 helpers:72] Loss: {l}"],
        "lm_loss",
    ),
    (
        "- INFO - Epoch [1/6][{s}/2000000]\tlr: 0.00227, eta: 0:01:10, loss_parse_time: 0.000",
        ["- INFO - loss: {l}"],
        "lm_loss",
    ),
)


@pytest.mark.parametrize(("head", "lines", "name"), BLOCKS)
@settings(max_examples=8, deadline=None)
@given(steps=st.lists(st.integers(1, 10**6), min_size=1, max_size=3, unique=True).map(sorted), loss=LOSS)
def test_a_loss_below_a_line_that_names_its_step_is_of_that_step(
    shared: Stand, head: str, lines: list[str], name: str, steps: list[int], loss: str
) -> None:
    log = [line.format(s=step, l=loss) for step in steps for line in (head, *lines)]
    found = rows_of(shared, log)
    assert {step: values.get(name) for step, values in found.items()} == dict.fromkeys(steps, float(loss))


@settings(max_examples=8, deadline=None)
@given(epochs=STEPS, loss=LOSS)
def test_a_loss_below_a_banner_of_an_epoch_is_the_epochs(shared: Stand, epochs: list[int], loss: str) -> None:
    lines: list[str] = []
    for epoch in epochs:
        lines += [f"=== EPOCH {epoch}/2000000 ===", f"loss train: {loss}  eval: 2.344", "acc train: 0.188  eval: 0.155"]
    found = rows_of(shared, lines)
    assert {step: values["lm_loss"] for step, values in found.items()} == dict.fromkeys(epochs, float(loss))


@settings(max_examples=8, deadline=None)
@given(epochs=st.lists(st.integers(2, 10**6), min_size=1, max_size=3, unique=True).map(sorted), loss=LOSS)
def test_an_evaluation_stands_at_the_epoch_that_it_names(shared: Stand, epochs: list[int], loss: str) -> None:
    lines = ["[epoch 001]  average training loss: 212.1231"]
    lines += [f"[epoch {epoch:03}]  average test loss: {loss}" for epoch in epochs]
    found = rows_of(shared, lines)
    assert {step: values["test/loss"] for step, values in found.items() if step > 1} == dict.fromkeys(
        epochs, float(loss)
    )
