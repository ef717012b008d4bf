"""Shapes of step lines in which loops of ten years print: each with any counters and numbers, not a list of lines."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Event, Origin, StepMetrics
from lens_core.detection.log_lines import Context, LineEngine, Reading
from lens_core.plugin_api.components import Detector
from tests.lens_core.detection.log_lines.stand import Stand

STEP = st.integers(1, 10**7)
LOSS = st.integers(1, 10**6).map(lambda number: f"{number / 1000:.3f}")
RATE = st.integers(1, 9999).map(lambda number: f"{number / 10**6:.6f}")
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def shared(detectors: list[Detector]) -> Stand:
    """One processor for all examples; each has a job of its own."""
    return Stand(detectors)


def rows_of(shared: Stand, lines: Sequence[str]) -> list[StepMetrics]:
    origin = Origin(workload_uid=f"w{next(_NUMBERS)}", pod_name="p", namespace="n")
    records = [record for line in lines for record in shared.feed(line, origin=origin).records]
    return [record for record in records if isinstance(record, StepMetrics)]


def steps_of(engine: LineEngine, line: str) -> list[Reading]:
    return [reading for reading in engine.read_line(line, Context()) if reading.kind == "metric"]


# A line that names its step: {s} the step, {t} a total, {l} a loss, {r} a rate.
WITH_STEP = (
    "{s}: {l}, {l} avg, {r} rate, 3.300000 seconds, 627072 images",
    " {s}: {l}, {l} avg loss, {r} rate, 4.123456 seconds, 76800 images, 12.345 hours left",
    "{s}:\tlearn: {l}\ttest: 0.6712\tbest: 0.6712 (0)\ttotal: 52.1ms\tremaining: 52s",
    "[2020-01-01 12:00:00,000 INFO] Step {s}/{t}; acc:   5.12; ppl: 12345.67; xent: {l}; lr: {r}; 12/13 tok/s;  15 sec",
    "{s}/{t} (epoch 0.236), train_loss = {l}, time/batch = 0.5s",
    "[{s} | 34.56] loss={l} avg=3.15",
    "(Iteration {s} / {t}) loss: {l}",
    "INFO:root:Epoch[0] Batch [{s}]\tSpeed: 1234.56 samples/sec\tcross-entropy={l}",
    "INFO:root:Epoch[0] Batch [0-{s}]\tSpeed: 1234.56 samples/sec\tcross-entropy={l}",
    "[Epoch 0][Batch {s}], Speed: 12.345 samples/sec, RPNAcc=0.91, RCNN_CrossEntropy={l}",
    "I0131 10:00:00.123456  1234 max_utils.py:100] Step {s}: loss={l}",
    "I0101 12:00:06.223456  1234 solver.cpp:218] Iteration {s} (12.3 iter/s, 8.1s/100 iters), loss = {l}",
    "global_step={s}, loss=[{l}]",
    "2021-01-01 12:00:00,123 - epoch 1 - iter {s}/{t} - loss {l} - samples/sec: 123.45 - lr: {r}",
    "[06/01 12:00:00] ppdet.engine INFO: Epoch: [0] [ {s}/{t}] learning_rate: {r} loss: {l} ips: 12.3 images/s",
    "Epoch 1.00 / 50, i = {s} / {t}, loss = {l}",
    "[0/25][{s}/{t}]\tLoss: {l}\tD(x): 0.53",
    "step {s} - loss {l} - lr {r}",
    "[2020-01-01 12:00:00] Ep. 1 : Up. {s} : Sen. 64,000 : Cost {l} : Time 120.5s : 12345.67 words/s : L.r. {r}",
    "I0101 12:00:00.123456 140 train.py:500] Step {s}: {{'train/loss': {l}, 'train/accuracy': 0.01}}",
    "I0101 10:00:00.123456 140 metric_writer.py:90] [{s}] accuracy=0.5123, loss={l}, timing/seqs_per_second=123.4",
    "[PAX STATUS] step_i: {s}, training loss: {l}",
    "log_hooks.py: 277: Rank: 0; [ep: 0] iter: {s}; lr: {r}; loss: {l}; btime(ms): 512; eta: 1h;",
    " Epoch[ 1 of 10]-Minibatch[   1- {s}]: SamplesSeen = 6400; CrossEntropyWithSoftmax = {l}; TotalTime=1.2s",
    "train          Epoch   0:    1%|          | {s}/{t} [00:10<16:30,  1.00ba/s, loss/train/total={l}]",
)


@pytest.mark.parametrize("shape", WITH_STEP)
@settings(max_examples=15, deadline=None)
@given(step=STEP, loss=LOSS, rate=RATE)
def test_a_line_with_a_step_has_it_and_its_loss(
    engine: LineEngine, shape: str, step: int, loss: str, rate: str
) -> None:
    (reading,) = steps_of(engine, shape.format(s=step, t=step + 1, l=loss, r=rate))
    found = reading.values.get("step_in_epoch") if reading.iteration is None else reading.iteration
    assert (found, reading.values["lm_loss"]) == (step, float(loss))
    if "{r}" in shape:
        assert reading.values["learning_rate"] == float(rate)


# The same words about other work, or without a training's numbers.
OTHER_WORK = (
    "INFO:tensorflow:Saving dict for global step {s}: global_step = {s}, loss = {l}, metrics/accuracy = 0.2",
    "Epoch 0 | Validation | Elapsed Time: 0:00:02 | Steps: {s} | Loss: {l} | Dataset: dev.csv",
    "val loss: {l}:  50%|#####     | {s}/{t} [00:05<00:05,  9.5it/s]",
    "Loading weights, size: {l}:  50%|#####     | {s}/{t} [00:05<00:05,  9.5it/s]",
    "Adam optimizer: lr {r}, step {s}",
    "Arguments: lr: {r} | step: {s} | loss: mse",
    "perplexity: {l} step: {s}",
    "Grad step {s}/{t} in train step {s}/{t} completed. Objective: -{l}",
    "Finding best initial lr:  50%|█████     | {s}/{t} [00:05<00:05,  9.81it/s, loss={l}]",
    "Iteration {s}: evaluating, loss: {l}",
    "DEBUG CV Batch {s}/{t} loss {l} history loss 99.1 rank 0",
    "step {s}/{t} val_loss:{l} train_time:12345ms step_avg:98.76ms",
)


@pytest.mark.parametrize("shape", OTHER_WORK)
@settings(max_examples=15, deadline=None)
@given(step=STEP, loss=LOSS, rate=RATE)
def test_a_line_about_other_work_is_no_step(engine: LineEngine, shape: str, step: int, loss: str, rate: str) -> None:
    assert steps_of(engine, shape.format(s=step, t=step + 1, l=loss, r=rate)) == []


BARS = (
    "loss: {l}:  50%|#####     | {s}/{t} [00:05<00:05,  9.5it/s]",
    "accuracy: 0.5123, loss: {l} ||:  50%|#####     | {s}/{t} [00:05<00:05,  9.5it/s]",
    " 50%|█████     | {s}/{t} [00:05<00:05,  9.81it/s, loss={l}]",
    "50%|█████     | {s}/{t} [00:05<00:05,  9.81it/s, Loss: {l}]",
    "Training progress:   3%|▎         | {s}/{t} [00:12<05:55, 81.2it/s, Loss={l}]",
)


@pytest.mark.parametrize("shape", BARS)
@settings(max_examples=10, deadline=None)
@given(total=st.integers(2, 1000), epochs=st.integers(1, 4), loss=LOSS, banner=st.booleans())
def test_a_bar_that_begins_anew_is_the_next_epoch_and_no_restart(
    shared: Stand, shape: str, total: int, epochs: int, loss: str, banner: bool
) -> None:
    lines = []
    for epoch in range(epochs):
        lines += [f"Epoch {epoch + 1}/{epochs}"] if banner else []
        lines += [shape.format(s=step, t=total, l=loss) for step in (total // 2 or 1, total)]
    rows = rows_of(shared, lines)
    expected = [epoch * total + step for epoch in range(epochs) for step in (total // 2 or 1, total)]
    assert [row.row_step for row in rows] == expected
    assert {row.attempt for row in rows} == {1}
    assert {row.values["lm_loss"] for row in rows} == {float(loss)}


@settings(max_examples=20, deadline=None)
@given(
    total=st.integers(2, 50),
    epochs=st.integers(1, 3),
    loss=LOSS,
    shape=st.sampled_from(["{s}/{t}, train_loss: {l}", "Step [{s}/{t}], Loss: {l}"]),
)
def test_steps_below_the_name_of_an_epoch_or_without_any_name_go_on_counting(
    shared: Stand, total: int, epochs: int, loss: str, shape: str
) -> None:
    lines: list[str] = []
    for epoch in range(1, epochs + 1):
        lines += [f"Epoch {epoch}/{epochs}", *(shape.format(s=step, t=total, l=loss) for step in (1, total))]
    rows = rows_of(shared, lines)
    expected = [(epoch * total + step, 1) for epoch in range(epochs) for step in (1, total)]
    assert [(row.row_step, row.attempt) for row in rows] == expected


@settings(max_examples=20, deadline=None)
@given(losses=st.lists(LOSS, min_size=1, max_size=4))
def test_a_loss_below_the_name_of_its_epoch_is_the_epochs(shared: Stand, losses: list[str]) -> None:
    lines: list[str] = []
    for epoch, loss in enumerate(losses, 1):
        lines += [f"Epoch {epoch}/24", "-" * 10, f"train Loss: {loss} Acc: 0.6885", "val Loss: 0.2046 Acc: 0.9346"]
    rows = rows_of(shared, lines)
    assert [(row.row_step, row.values["lm_loss"]) for row in rows if "lm_loss" in row.values] == [
        (epoch, float(loss)) for epoch, loss in enumerate(losses, 1)
    ]
    assert [(row.row_step, row.values["val/acc"]) for row in rows if "val/loss" in row.values] == [
        (epoch, 0.9346) for epoch in range(1, len(losses) + 1)
    ]


@settings(max_examples=20, deadline=None)
@given(
    total=st.integers(2, 1000),
    loss=LOSS,
    name=st.sampled_from(["Epochs", "Epoch", "epochs"]),
    label=st.sampled_from(["loss", "t_loss", "train_loss"]),
)
def test_a_bar_of_epochs_counts_epochs(shared: Stand, total: int, loss: str, name: str, label: str) -> None:
    bar = "{n}:  50%|█████     | {s}/{t} [00:05<00:45,  2.0it/s, {k}={l}, i_acc=0.912]"
    lines = [bar.format(n=name, s=step, t=total, k=label, l=loss) for step in (total // 2 or 1, total)]
    assert [(row.row_step, row.values["lm_loss"]) for row in rows_of(shared, lines)] == [
        (step, float(loss)) for step in (total // 2 or 1, total)
    ]


EVALUATIONS = (
    "eval in step: {s}, loss: {l}, accuracy: 0.44",
    "I0101 10:00:00.123456 140 train.py:600] eval at step: {s}, accuracy: 0.44, loss: {l}",
    "eval loss: {l}, accuracy: 0.44",
    "[2023-08-01 10:00:00,123] [    INFO] - eval loss: {l}, accuracy: 0.44",
    "Eval loss = {l} | accuracy = 0.44",
)


@pytest.mark.parametrize("shape", EVALUATIONS)
@settings(max_examples=10, deadline=None)
@given(step=STEP, loss=LOSS, other=LOSS)
def test_results_of_an_evaluation_stand_beside_the_step_that_they_are_of(
    shared: Stand, shape: str, step: int, loss: str, other: str
) -> None:
    rows = rows_of(shared, [f"train in step: {step}, loss: {other}", shape.format(s=step, l=loss)])
    assert {row.row_step for row in rows} == {step}
    values = {name: value for row in rows for name, value in row.values.items()}
    found = values["lm_loss"], values["eval/loss"], values["eval/accuracy"]
    assert found == (float(other), float(loss), 0.44)


TABLES = (
    ("epoch     train_loss  valid_loss  accuracy  time    ", "{s}         {l}    0.412345    0.812345  00:12     "),
    ("epoch       main/loss   validation/main/loss  elapsed_time", "{s}           {l}    0.0949       12.3"),
    ("epoch,accuracy,loss,val_accuracy,val_loss", "{s},0.9,{l},0.95,0.2"),
    ("Epoch\tTraining Loss\tValidation Loss\tAccuracy", "{s}\t{l}\t0.400000\t0.8"),
    ("Step\tTraining Loss\tValidation Loss", "{s}\t{l}\tNo log"),
    ("E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  SCORE ", "  0   {s}          0.50     {l}    0.00    0.00"),
)


@pytest.mark.parametrize(("header", "row"), TABLES)
@settings(max_examples=10, deadline=None)
@given(first=st.integers(0, 10**5), losses=st.lists(LOSS, min_size=1, max_size=4))
def test_rows_below_a_header_count_its_steps_or_epochs(
    shared: Stand, header: str, row: str, first: int, losses: list[str]
) -> None:
    rows = rows_of(shared, [header, *(row.format(s=first + n, l=loss) for n, loss in enumerate(losses))])
    found = [(row.row_step, row.values["lm_loss"]) for row in rows]
    assert found == [(first + n, float(loss)) for n, loss in enumerate(losses)]


KERAS = (
    "{s}/{t} [==============================] - 12s - loss: {l} - acc: 0.9158",
    "{s}/{t} [==============================] - 12s 199us/sample - loss: {l} - acc: 0.9758",
    "{s}/{t} - 3s - loss: {l} - accuracy: 0.9158 - 3s/epoch - 6ms/step",
    "{s}/{t} - 3s - 6ms/step - accuracy: 0.9558 - loss: {l}",
    "{s}/{t} [==============================] - 5s 3ms/step - loss: {l} - accuracy: 0.9158",
)


@pytest.mark.parametrize("shape", KERAS)
@settings(max_examples=10, deadline=None)
@given(total=st.integers(2, 1000), other=st.integers(1, 1000), epochs=st.integers(1, 3), loss=LOSS)
def test_what_fit_prints_is_read_and_an_evaluation_after_it_is_not(
    shared: Stand, shape: str, total: int, other: int, epochs: int, loss: str
) -> None:
    lines: list[str] = []
    for epoch in range(1, epochs + 1):
        lines += [f"Epoch {epoch}/{epochs}", shape.format(s=total, t=total, l=loss)]
    rows = rows_of(shared, [*lines, shape.format(s=other, t=other, l="99.5")])
    assert [(row.row_step, row.attempt) for row in rows] == [(epoch * total, 1) for epoch in range(1, epochs + 1)]
    assert {row.values["lm_loss"] for row in rows} == {float(loss)}


@settings(max_examples=20, deadline=None)
@given(first=st.integers(1, 10**6), rewards=st.lists(LOSS, min_size=1, max_size=3), loss=LOSS)
def test_a_page_of_yaml_is_a_step_with_the_numbers_above_it(
    shared: Stand, first: int, rewards: list[str], loss: str
) -> None:
    lines = [
        line
        for number, reward in enumerate(rewards)
        for line in (
            "Result for PPO_CartPole-v0_120b5_00000:",
            f"  episode_reward_mean: {reward}",
            "  info:",
            "          cur_lr: 4.999999873689376e-05",
            f"          total_loss: {loss}",
            "  timesteps_total: 4000",
            f"  training_iteration: {first + number}",
        )
    ]
    rows = rows_of(shared, lines)
    assert [(row.row_step, row.values["episode_reward_mean"], row.values["total_loss"]) for row in rows] == [
        (first + number, float(reward), float(loss)) for number, reward in enumerate(rewards)
    ]


def test_the_solver_of_caffe_tells_of_its_snapshots_and_its_end(shared: Stand) -> None:
    done = shared.feed(
        "I0101 12:00:07.123456  1234 solver.cpp:454] Snapshotting to binary proto file snap_iter_200.caffemodel",
        "I0101 12:00:08.123456  1234 solver.cpp:322] Optimization Done.",
        origin=Origin(workload_uid="caffe"),
    )
    found = [(record.type, record.details.get("path")) for record in done.records if isinstance(record, Event)]
    assert found == [("checkpoint_saving", "snap_iter_200.caffemodel"), ("training_ended", None)]
