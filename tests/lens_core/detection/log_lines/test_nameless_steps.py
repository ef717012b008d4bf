"""Steps that a line names by their place alone, whatever stands before it; and stages and networks, which are none."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Origin, StepMetrics
from lens_core.detection.log_lines import Context, LineEngine
from lens_core.plugin_api.components import Detector
from tests.generated import examples
from tests.lens_core.detection.log_lines.stand import Stand

STEP = st.integers(0, 10**7)
LOSS = st.integers(-(10**6), 10**6).map(lambda number: f"{number / 1000:.3f}")
PREFIX = st.sampled_from(
    [
        "",
        "[rank0]:",
        "[default3]:",
        "7: ",
        "2026-05-18T16:04:46.339001234Z stdout F ",
        "2026-05-18T16:04:46.339001234Z ",
    ]
)
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def shared(detectors: list[Detector]) -> Stand:
    """One processor for all examples; each has a job of its own."""
    return Stand(detectors)


def rows_of(shared: Stand, lines: Sequence[str]) -> list[StepMetrics]:
    origin = Origin(workload_uid=f"w{next(_NUMBERS)}", pod_name="p", namespace="n")
    records = [record for line in lines for record in shared.feed(line, origin=origin).records]
    return [record for record in records if isinstance(record, StepMetrics)]


def read_rows(shared: Stand, lines: Sequence[str]) -> list[tuple[int, float]]:
    return [(row.row_step, row.values["lm_loss"]) for row in rows_of(shared, lines)]


@settings(max_examples=examples(25), deadline=None)
@given(first=STEP, losses=st.lists(LOSS, min_size=1, max_size=4), prefix=PREFIX, epoch=st.booleans())
def test_a_number_a_tab_and_a_number_are_a_step_and_its_loss(
    shared: Stand, first: int, losses: list[str], prefix: str, epoch: bool
) -> None:
    lines = [f"{prefix}{first + index}:\t{loss}" for index, loss in enumerate(losses)]
    found = read_rows(shared, [f"{prefix}Epoch: 0", *lines] if epoch else lines)
    assert found == [(first + index, float(loss)) for index, loss in enumerate(losses)]


@settings(max_examples=examples(25), deadline=None)
@given(step=STEP, loss=LOSS, task=st.integers(0, 99))
def test_two_numbers_in_another_form_are_no_step(engine: LineEngine, step: int, loss: str, task: int) -> None:
    for line in (f"{task}: {loss}", f"{step}: {task}: {loss}", f"{step}:\t{task}", f"{step}:{loss}", f"{step}:\t-"):
        assert not [reading for reading in engine.read_line(line, Context()) if reading.kind == "metric"], line


OBJECTIVES = st.lists(
    st.sampled_from(["MLM-en", "MLM-fr", "CLM-en", "TLM-en-fr", "AE-en", "MT-en-fr", "BT-fr-en-fr", "PRIM-FWD"]),
    min_size=1,
    max_size=3,
    unique=True,
)


@settings(max_examples=examples(25), deadline=None)
@given(
    step=st.integers(5, 10**6),
    width=st.integers(1, 8),
    names=OBJECTIVES,
    loss=st.integers(0, 10**5),
    unit=st.sampled_from(["sent", "equations", "graphs"]),
    rate=st.sampled_from(["", " - model LR = 1.0000e-04", " - LR: 1.0000e-04"]),
    prefix=PREFIX,
)
def test_a_number_between_dashes_before_two_speeds_is_the_step(
    engine: LineEngine, step: int, width: int, names: list[str], loss: int, unit: str, rate: str, prefix: str
) -> None:
    objectives = " || ".join(f"{name}: {(loss + index) / 1000:7.4f}" for index, name in enumerate(names))
    speeds = f"{float(loss):7.2f} {unit}/s - {loss + 0.5:8.2f} words/s"
    line = f"{prefix}INFO - 01/02/20 10:00:00 - 0:01:23 - {step:{width}d} - {speeds} - {objectives}{rate}"
    (reading,) = engine.read_line(line, Context())
    assert (reading.iteration, reading.values["lm_loss"]) == (step, loss / 1000)
    assert [reading.values[name] for name in names] == [(loss + index) / 1000 for index in range(len(names))]
    assert (reading.values["samples_per_second"], reading.values["tokens_per_second"]) == (loss, loss + 0.5)
    assert reading.values.get("learning_rate") == (1e-4 if rate else None)


@settings(max_examples=examples(25), deadline=None)
@given(
    epoch=st.integers(0, 500),
    step=STEP,
    parts=st.lists(st.sampled_from("BCMSEI"), min_size=1, max_size=4, unique=True),
    loss=st.integers(0, 10**5),
    eta=st.sampled_from(["1 day, 2:03:04", "10:11:12", "2 days, 0:00:01"]),
    prefix=PREFIX,
)
def test_an_epoch_in_brackets_and_the_iteration_behind_it(
    engine: LineEngine, epoch: int, step: int, parts: list[str], loss: int, eta: str, prefix: str
) -> None:
    losses = " | ".join(f"{name}: {index + 0.5:.3f}" for index, name in enumerate(parts))
    line = f"{prefix}[{epoch:3d}] {step:7d} || {losses} | T: {loss / 1000:.3f} || ETA: {eta} || timer: 0.512"
    (reading,) = engine.read_line(line, Context())
    assert (reading.iteration, reading.values["epoch"], reading.values["lm_loss"]) == (step, epoch, loss / 1000)
    assert [reading.values[name] for name in parts] == [index + 0.5 for index in range(len(parts))]
    assert reading.values["elapsed_time_per_iteration_ms"] == 512.0


METERS = (
    "Epoch: [{e}][{s}/{t}]\tTime 0.500 (0.600)\tData 0.010 (0.020)\tLoss {l} (4.1000)\t",
    "Epoch: [{e}][  {s}/{t}]\tTime  0.505 ( 0.612)\tData  0.100 ( 0.2)\tLoss {l} (7.0e+00)\tAcc@1   0.00 (  0.10)",
    "Epoch: [{e}]  [ {s}/{t}]  eta: 0:01:02  lr: 0.000005  loss: {l} (0.8558)  time: 4.3713  max mem: 51710",
)


@pytest.mark.parametrize("shape", METERS)
@settings(max_examples=examples(15), deadline=None)
@given(total=st.integers(2, 1000), first=st.integers(0, 1), epochs=st.integers(1, 3), prefix=PREFIX)
def test_steps_of_an_epoch_are_counted_from_the_epoch_that_is_the_first(
    shared: Stand, shape: str, total: int, first: int, epochs: int, prefix: str
) -> None:
    places = [(epoch, step) for epoch in range(epochs) for step in (first, total)]
    lines = [prefix + shape.format(e=first + epoch, s=step, t=total, l=0.5 + epoch) for epoch, step in places]
    rows = rows_of(shared, lines)
    assert sorted({row.row_step for row in rows}) == sorted({epoch * total + step for epoch, step in places})
    assert {row.attempt for row in rows} == {1}


VERBS = (
    "Quantize",
    "Quantizing",
    "Calibrate",
    "Compiling",
    "Export",
    "Convert weights",
    "Pruning",
    "Tokenize",
    "Loading data",
    "Building index",
    "Merge adapters",
    "Normalizing",
)


@settings(max_examples=examples(40), deadline=None)
@given(
    verb=st.sampled_from(VERBS),
    counter=st.sampled_from(["Step [{s}/{t}]", "[{s}/{t}]", "Step {s}/{t}", "step {s} of {t}:", "Iter {s}/{t} -"]),
    sign=st.sampled_from([": loss={l}", ", loss {l}", "... loss={l}", " | loss: {l}"]),
    step=st.integers(1, 50),
    loss=LOSS,
    prefix=PREFIX,
)
def test_a_stage_of_a_pipeline_is_no_step(
    shared: Stand, verb: str, counter: str, sign: str, step: int, loss: str, prefix: str
) -> None:
    line = prefix + counter.format(s=step, t=50) + f" {verb}" + sign.format(l=loss)
    assert rows_of(shared, [line]) == [], line


TRAFFIC = (
    "iter {s} read {n} MB/s loss {z}",
    "iter {s} write {n}.5 GB/s loss {z}",
    "iteration {s}: rx {n} Gbits/sec, loss {z}.00",
    "step {s}: bandwidth {n} Mbps, packet loss {z}.5",
    "iter {s}: sent {n} packets, received {n}, loss {z}%",
    "step {s} | ping: {n} ms | jitter: 0.2 ms | loss: {z}%",
    "Iteration {s}: iops={n}, loss={z}",
)


@pytest.mark.parametrize("shape", TRAFFIC)
@settings(max_examples=examples(8), deadline=None)
@given(step=STEP, number=st.integers(1, 10**4), lost=st.integers(0, 99), prefix=PREFIX)
def test_what_networks_and_disks_lose_is_no_loss_of_a_training(
    shared: Stand, shape: str, step: int, number: int, lost: int, prefix: str
) -> None:
    assert rows_of(shared, [prefix + shape.format(s=step, n=number, z=lost)]) == []


LOOKS_LIKE_OTHER_WORK = (
    ("step {s}/9999999999 Quantize loss: 0.25, loss: {l}", "Quantize loss"),
    ("iter {s} loss {l} io 512.5 MB/s", "io"),
    ("step {s} | loss: {l} | read: 0.015 | forward: 0.5", "read"),
    ("step {s}/9999999999 optimizing: loss={l}", ""),
)


@pytest.mark.parametrize(("shape", "beside"), LOOKS_LIKE_OTHER_WORK)
@settings(max_examples=examples(8), deadline=None)
@given(step=STEP, loss=LOSS)
def test_a_step_beside_such_words_is_one(engine: LineEngine, shape: str, beside: str, step: int, loss: str) -> None:
    (reading,) = engine.read_line(shape.format(s=step, l=loss), Context())
    assert (reading.iteration, reading.values["lm_loss"]) == (step, float(loss))
    assert not beside or beside in reading.values
