"""Steps whose counter and numbers stand on different lines or below a header, and other work in such shapes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Origin, StepMetrics
from lens_core.plugin_api.components import Detector
from tests.lens_core.detection.log_lines.stand import Stand

STEPS = st.lists(st.integers(1, 10**7), min_size=2, max_size=4, unique=True).map(sorted)
LOSS = st.integers(1, 10**6).map(lambda number: f"{number / 10**5:.5f}")
_NUMBERS = itertools.count()

# Lines of one step: {s} the step, {t} a total, {l} a loss.
WITH_LOSS = (
    "iter {s}: {l}",
    "[INFO 21:37:03] my_main Recent Stats | t_env:      {s} | Episode:      189\n"
    "epsilon:                   0.8083\tgrad_norm:                 0.4100\tloss:                      {l}",
    "Epoch #1: 50001it [00:40, 1244.54it/s, env_step={s}, len=200, loss={l}, n/ep=7, n/st=2000, rew=200.00]",
    "Epoch #1:  50%|#####     | 25000/50000 [00:20<00:20, 1244.54it/s, env_step={s}, len=200, loss={l}, rew=180.00]",
    "  iteration: {s}/{t}  total_loss: {l}  time: 0.4123 s/iter total_throughput: 77.6 samples/s lr: 1.00e-04",
    "12:00:10 SUCCESS Step {s} | Time: 10.12s | Loss: {l} | Entropy: 0.4123 | LR: 1.00e-06",
    "train ({s}/{t}) loss: {l} | loss/mean: 0.4123 | lr: 0.001",
)
WITH_OTHERS = (
    ("global step {s} learning rate 0.5000 step-time 1.39 perplexity {l}", "perplexity"),
    ("DEEPMD INFO    batch {s:7d}: trn: rmse = {l}, rmse_e = 6.40e-01, rmse_f = 8.74e-01, lr = 1.00e-03", "rmse"),
    ("fps step: 36553 fps total: 28671 epoch: {s}/{t} frames: {l}", "frames"),
    (
        " Scenario spread Algo rmappo Exp check updates 0/6250 episodes, total num timesteps {s}/{t}, FPS 1255.\n"
        "average episode rewards is {l}",
        "average episode rewards",
    ),
)
# Headers with a row each.
COLUMNS = (
    (
        "average  since         example        example  current  current  current\n"
        "loss     last          counter         weight    label  predict features",
        "{l} {l} {s:12d} {s:12d}.0   1.0000   0.0000      128",
        "lm_loss",
    ),
    (
        "#  step      rmse_val    rmse_trn    rmse_e_val  rmse_e_trn         lr",
        "{s:7d}      2.70e+01    {l}e+00      6.30e-01    6.40e-01    1.0e-03",
        "rmse_trn",
    ),
    ("# batch      l2_tst    l2_trn         lr", "{s:7d}    3.84e+01  {l}e+00    1.0e-03", "l2_trn"),
)
OTHER_WORK = (
    "Step {s}/{t}: Running tests (loss=0)",
    "Stage {s} of {t} - Installing dependencies (loss=0)",
    "INFO validator epoch={s} slot=6881 block=8123411 reward={l}",
    "Epoch {s}: block reward {l}, validators 1024",
    "epoch {s} of {t} blocks: reward {l}",
    "epoch 17{s:08d} reward distribution complete: {l} tokens",
    "packet {s}/{t} loss=0 time={l}",
    "iter {s}: throughput 912 Mbps, loss 0.01%",
    "iter {s}: 12.5 MB/s\nloss={l}",
    "validated in step {s} of {t} for reward {l}",
)


@pytest.fixture(scope="module")
def shared(detectors: list[Detector]) -> Stand:
    """One processor for all examples; each has a job of its own."""
    return Stand(detectors)


def rows_of(shared: Stand, texts: Sequence[str]) -> list[StepMetrics]:
    origin = Origin(workload_uid=f"blocks{next(_NUMBERS)}", pod_name="p", namespace="n")
    lines = [line for text in texts for line in text.split("\n")]
    records = [record for line in lines for record in shared.feed(line, origin=origin).records]
    return [record for record in records if isinstance(record, StepMetrics)]


def filled(shape: str, steps: Sequence[int], number: str) -> list[str]:
    return [shape.format(s=step, t=steps[-1] + 1, l=number) for step in steps]


@pytest.mark.parametrize(("shape", "name"), [*((shape, "lm_loss") for shape in WITH_LOSS), *WITH_OTHERS])
@settings(max_examples=10, deadline=None)
@given(steps=STEPS, number=LOSS)
def test_steps_are_read_with_their_numbers(shared: Stand, shape: str, name: str, steps: list[int], number: str) -> None:
    rows = rows_of(shared, filled(shape, steps, number))
    assert [(row.row_step, row.values.get(name)) for row in rows] == [(step, float(number)) for step in steps]


@pytest.mark.parametrize(("header", "shape", "name"), COLUMNS)
@settings(max_examples=10, deadline=None)
@given(steps=STEPS, number=LOSS)
def test_rows_below_a_header_are_steps(
    shared: Stand, header: str, shape: str, name: str, steps: list[int], number: str
) -> None:
    rows = rows_of(shared, [header, *filled(shape, steps, number)])
    assert [(row.row_step, row.values.get(name)) for row in rows] == [(step, float(number)) for step in steps]


@settings(max_examples=10, deadline=None)
@given(losses=st.lists(LOSS, min_size=1, max_size=4))
def test_losses_below_an_epoch_that_took_a_time_are_the_epochs(shared: Stand, losses: list[str]) -> None:
    texts = [
        f"Epoch {epoch} of 500 took 1.858s\n  training loss:\t\t{loss}\n  validation loss:\t\t0.406868"
        for epoch, loss in enumerate(losses, 1)
    ]
    found: dict[int, dict[str, float]] = {}
    for row in rows_of(shared, texts):
        found.setdefault(row.row_step, {}).update(row.values)
    assert [(step, values["lm_loss"], values["validation/loss"]) for step, values in found.items()] == [
        (epoch, float(loss), 0.406868) for epoch, loss in enumerate(losses, 1)
    ]


@pytest.mark.parametrize("shape", OTHER_WORK)
@settings(max_examples=10, deadline=None)
@given(steps=STEPS, number=LOSS)
def test_lines_of_other_work_are_no_steps(shared: Stand, shape: str, steps: list[int], number: str) -> None:
    assert rows_of(shared, filled(shape, steps, number)) == []
