"""Steps that a line names by a place or a number alone, sections of a line, and results before the first step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Event, StepMetrics
from lens_core.detection.log_lines import LineEngine
from lens_core.plugin_api.components import Detector
from tests.generated import examples
from tests.lens_core.detection.log_lines.stand import Stand, attempts, events, of

numbers = st.floats(0.001, 1e4).map(lambda number: float(f"{number:.5g}"))
fixed = settings(deadline=None, max_examples=examples(40))


def losses(stand: Stand, *lines: str) -> list[tuple[int, float | None]]:
    return [(row.row_step, row.values.get("lm_loss")) for row in of(StepMetrics, stand.feed(*lines))]


@given(first=st.integers(0, 10**6), every=st.integers(1, 500), values=st.lists(numbers, min_size=1, max_size=4))
@pytest.mark.parametrize(
    "shape",
    [
        "   {step} train loss:  {loss} test acc: 45.12%",
        "[{step}] training_loss = {loss}",
        "[{step}] | gnorm 0.91 lr  0.000250 | loss {loss} | bpc 10.24",
        "I0501 10:11:12.123456 140123 train.py:412] [{step}] loss={loss}, lr=0.1",
        "{step}, loss = {loss}",
        "Train loss {step} {loss:.6f} Grad Norm 12.132 4.23s/it",
        "Step... ({step} | Loss: {loss}, Learning Rate: 1e-05)",
        "Step    {step}: train WeightedCategoryCrossEntropy |  {loss}",
        "2020-05-01 10:11:12 INFO: Finished STEP {step}/9999999, loss = {loss} (0.123 sec/batch)",
        "train: [## ] data={step:07d}/9999999 loss={loss}\u00b10.12 acc=45.12\u00b10.10% t=00:00:12 ETA=00:10:12",
    ],
)
@fixed
def test_a_number_that_grows_is_the_step(
    detectors: list[Detector], shape: str, first: int, every: int, values: list[float]
) -> None:
    lines = [shape.format(step=first + index * every, loss=loss) for index, loss in enumerate(values)]
    expected = [(first + index * every, loss) for index, loss in enumerate(values)]
    found = losses(Stand(detectors), *lines)
    assert [step for step, _ in found] == [step for step, _ in expected], lines
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in expected], rel=1e-3)


@given(ranks=st.lists(st.integers(0, 7), min_size=2, max_size=8), loss=numbers)
@fixed
def test_a_number_that_falls_back_is_a_ranks_and_no_restart(
    detectors: list[Detector], ranks: list[int], loss: float
) -> None:
    done = Stand(detectors).feed(*(f"[{rank}] loss: {loss}" for rank in ranks))
    assert {attempt for attempt, _ in attempts(done)} <= {1}
    assert len(attempts(done)) <= len(set(ranks))


@given(
    epochs=st.integers(1, 4),
    marks=st.sets(st.integers(1, 20_000), min_size=1, max_size=4),
    first=st.sampled_from([0, 1]),
)
@fixed
def test_a_list_of_epoch_and_step(detectors: list[Detector], epochs: int, marks: set[int], first: int) -> None:
    lines = [f"[{epoch}, {mark:5d}] loss: 2.187" for epoch in range(first, first + epochs) for mark in sorted(marks)]
    done = attempts(Stand(detectors).feed(*lines))
    last = max(marks)
    assert done == [(1, epoch * last + mark) for epoch in range(epochs) for mark in sorted(marks)]


@given(loss=numbers, other=numbers, epoch=st.integers(1, 999), word=st.sampled_from(["Test", "val", "Valid", "eval"]))
@pytest.mark.parametrize(
    "shape",
    [
        "Epoch: {e}   Train: (loss = {l}, acc = 85.1)   {w}: (loss = {o}, acc = 85.3)",
        "epoch {e} | train: loss {l} acc 0.5 | {w}: loss {o} acc 0.4",
        "Epoch {e} train [loss: {l}, acc: 0.5] {w} [loss: {o}, acc: 0.4]",
    ],
)
@fixed
def test_sections_of_a_line(engine: LineEngine, shape: str, loss: float, other: float, epoch: int, word: str) -> None:
    (found,) = (one for one in engine.read_line(shape.format(e=epoch, l=loss, o=other, w=word)) if one.format)
    assert (found.values["epoch"], found.values["lm_loss"]) == (epoch, loss)
    assert found.values[f"{word.lower()}/loss"] == other


@given(values=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4), first=st.integers(0, 100))
@fixed
def test_a_block_of_julia_is_an_epoch(detectors: list[Detector], values: list[tuple[float, float]], first: int) -> None:
    lines = [
        line
        for epoch, (loss, other) in enumerate(values, first)
        for line in (f"\u250c Info: epoch {epoch}", f"\u2502   train_loss = {loss}", f"\u2514   test_loss = {other}")
    ]
    found = of(StepMetrics, Stand(detectors).feed(*lines))
    assert [(row.row_step, row.values["lm_loss"], row.values["test/loss"]) for row in found] == [
        (epoch, loss, other) for epoch, (loss, other) in enumerate(values, first)
    ]


@given(every=st.integers(1, 500), rows=st.integers(2, 5), epochs=st.integers(1, 3))
@fixed
def test_an_epoch_before_the_step_in_it(detectors: list[Detector], every: int, rows: int, epochs: int) -> None:
    """WeNet's `Batch 0/100` is step 100 of epoch 0."""
    lines = [
        f"2021-06-22 11:34:01,512 DEBUG TRAIN Batch {epoch}/{index * every} loss 98.2 lr 0.0001 rank 0"
        for epoch in range(epochs)
        for index in range(rows)
    ]
    done = attempts(Stand(detectors).feed(*lines))
    per_epoch = (rows - 1) * every
    counted = [epoch * per_epoch + index * every for epoch in range(epochs) for index in range(rows)]
    assert done == [(1, step) for step in dict.fromkeys(counted)]


@given(total=st.integers(20, 500), short=st.integers(2, 19), epochs=st.integers(1, 3))
@fixed
def test_a_shorter_bar_behind_a_full_one_is_an_evaluation(
    detectors: list[Detector], total: int, short: int, epochs: int
) -> None:
    shape = "accuracy: 0.5412, loss: 0.9321 ||: 100%|####| {done}/{all} [00:21<00:21,  2.31it/s]"
    lines = [
        line
        for _ in range(epochs)
        for line in (
            shape.format(done=total // 2, all=total),
            shape.format(done=total, all=total),
            shape.format(done=short // 2, all=short),
            shape.format(done=short, all=short),
        )
    ]
    done = attempts(Stand(detectors).feed(*lines))
    assert done == [(1, epoch * total + step) for epoch in range(epochs) for step in (total // 2, total)]


def test_a_second_stage_with_less_data_goes_on(detectors: list[Detector]) -> None:
    shape = "loss: 0.9321 ||: 100%|####| {}/{} [00:21<00:21,  2.31it/s]"
    lines = [shape.format(done, 50) for done in (25, 50)] + [shape.format(done, 10) for done in (5, 10) * 3]
    done = of(StepMetrics, Stand(detectors).feed(*lines))
    assert len(done) > 2


@given(step=st.integers(1, 10**6), loss=numbers, other=numbers, before=st.integers(0, 1))
@fixed
def test_results_before_the_first_step_wait_for_it(
    detectors: list[Detector], step: int, loss: float, other: float, before: int
) -> None:
    stand = Stand(detectors)
    assert of(StepMetrics, stand.feed(f"step {step - before}: val loss: {other}")) == []
    found = {row.row_step: row.values for row in of(StepMetrics, stand.feed(f"step {step} loss: {loss}"))}
    assert found[step]["lm_loss"] == loss
    assert found[step - before]["val/loss"] == other


@given(
    first=st.integers(0, 100), every=st.integers(1, 100), count=st.integers(2, 5), word=st.sampled_from(["val", "eval"])
)
@fixed
def test_results_of_growing_steps_are_a_training(
    detectors: list[Detector], first: int, every: int, count: int, word: str
) -> None:
    lines = [f"step {first + index * every}: {word} loss: 2.5" for index in range(count)]
    done = Stand(detectors).feed(*lines)
    assert attempts(done) == [(1, first + index * every) for index in range(count)]


@given(step=st.integers(0, 10**6), loss=numbers)
@fixed
def test_a_loss_beside_a_format_that_has_none(detectors: list[Detector], step: int, loss: float) -> None:
    stand = Stand(detectors)
    stand.feed(f"[2023-05-01 10:11:12,123] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05]")
    assert losses(stand, f"step {step} loss: {loss}")[-1] == (step, loss)


@pytest.mark.parametrize(
    "lines",
    [
        ["train:", "  epochs: 100", "  loss: 1.0", "  steps: 1000", "optimizer:", "  lr: 0.001"],
        ["Epochs: 10", "Steps per epoch: 312", "Total steps: 3120"],
        ["Mean loss 0.31 (epochs 5-10)"],
        [">>> step = 5; loss = 3.0"],
        ["step 3/5: Uploading artifact loss-report.txt 10 MB"],
        ["quantizing layer step 3: loss=0.5"],
        ["3 workers lost 2.5"],
        ["12 losses in all"],
        ["Not saving model because loss did not improve"],
    ],
)
def test_settings_and_sentences_are_no_steps(detectors: list[Detector], lines: list[str]) -> None:
    done = Stand(detectors).feed(*lines)
    assert (of(StepMetrics, done), of(Event, done)) == ([], [])


@given(step=st.integers(1, 10**6), name=st.sampled_from(["out/step.pt", "model.safetensors", "/ckpt/7", "'a/b.pth'"]))
@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("Saving model and optimizer state at iteration {step} to {path}", "checkpoint_saving"),
        ("[2019-01-07 12:12:43,123 INFO] Saving checkpoint {path}", "checkpoint_saving"),
        ("Saving model weights and runtime parameters to {path}", "checkpoint_saving"),
        ("saving checkpoint: {path}", "checkpoint_saving"),
        ("2021-08-01 10:21:12 | INFO | yolox.core.trainer:350 - Save weights to {path}", "checkpoint_saving"),
        ("Saving models and training states.", "checkpoint_saving"),
        ("Saving checkpoint at step {step}", "checkpoint_saving"),
        ("Validation loss decreased (0.312 --> 0.291).  Saving model ...", "checkpoint_saving"),
        ("saving the latest model (epoch 1, total_iters {step})", "checkpoint_saving"),
        ("INFO:x:Model checkpoint of size 4.98 GiB saved to {path}", "checkpoint_saved"),
        ("Saved state to {path}", "checkpoint_saved"),
        ("Model saved in path: {path}", "checkpoint_saved"),
        ("--> model saved at {path}", "checkpoint_saved"),
        ("Successfully saved model to {path}", "checkpoint_saved"),
        ("Saved an end-of-epoch checkpoint in {path}", "checkpoint_saved"),
        ("Checkpoint has been saved to {path}", "checkpoint_saved"),
        ("Resumed from checkpoint at step {step}", "checkpoint_loaded"),
        ("2026-03-01 08:17:22,000 - INFO - train - Resuming from step {step}", "checkpoint_loaded"),
        ("Resuming training from iteration {step}", "checkpoint_loaded"),
        ("Resuming training from {path}", "checkpoint_loaded"),
        ("Resume from global_step={step}", "checkpoint_loaded"),
        ("Continuing training from step {step}.", "checkpoint_loaded"),
        ("Will resume from checkpoint {path}", "checkpoint_loaded"),
        ("=> loaded checkpoint {path} (epoch 90)", "checkpoint_loaded"),
        ("Loaded checkpoint {path} (iteration {step})", "checkpoint_loaded"),
        ("[rank0]: Successfully reloaded the latest checkpoint from {path}", "checkpoint_loaded"),
        ("Restored from ./tf_ckpts/ckpt-{step}", "checkpoint_loaded"),
        ("Checkpoint restored from step {step}", "checkpoint_loaded"),
    ],
)
@fixed
def test_sentences_about_a_checkpoint(detectors: list[Detector], shape: str, kind: str, step: int, name: str) -> None:
    (event,) = of(Event, Stand(detectors).feed(shape.format(step=step, path=name)))
    assert event.type == kind
    if "{path}" in shape:
        assert event.details["path"] == name.strip("'")
    if "iteration {step}" in shape or "step {step}" in shape:
        assert event.iteration == step


@pytest.mark.parametrize(
    "line",
    [
        "Saving model config to config.json",
        "Saving tokenizer to tok/tokenizer.json",
        "Loading checkpoint shards: 100%|##########| 3/3",
        "Loading best model from ./checkpoint-500 (score: 0.5).",
        "Loaded pretrained checkpoint from /a/b.pt",
        "Loaded checkpoint /x/last.pt for evaluation",
        "INFO:tensorflow:Restoring parameters from /x/model.ckpt-1000",
        "To resume training from step 5, run train.py --resume out/5.pt",
        "resume: /x/y.pt",
        "resume_from_checkpoint: out/checkpoint-500",
        "Failed to load checkpoint from /x/step-5; the job can be resumed from step 4",
        "Resuming dataloader from step 500",
        "Resuming training from scratch",
        "Resume from None",
        "Resuming from pause",
        "Continuing with step 5",
        "Continuing training",
        "loaded 3 datasets from /x/y",
        "No checkpoint found to resume from",
        "To save the model use model.save('x.h5')",
        "The model will be saved to /tmp/x.pt",
        "Saving predictions to out/preds.json",
        "save_model: True, checkpoint path /tmp/x",
        "model state loaded from /tmp/x.pt",
    ],
)
def test_sentences_about_other_files(detectors: list[Detector], line: str) -> None:
    assert events(Stand(detectors).feed(line)) == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Starting training...", "training_started"),
        ("2019-03-01 10:11:12,123 - INFO - allennlp.training.trainer - Beginning training.", "training_started"),
        ("[INFO:sockeye.training] Training started.", "training_started"),
        ("I0721 15:10:03.131415  3456 caffe.cpp:248] Starting Optimization", "training_started"),
        ("Finished Training", "training_ended"),
        ("Training complete in 12m 31s", "training_ended"),
        ("I0721 15:12:25.136223  3456 caffe.cpp:259] Optimization Done.", "training_ended"),
    ],
)
def test_sentences_about_the_begin_and_the_end(stand: Stand, line: str, kind: str) -> None:
    assert events(stand.feed(line)) == [kind]


@given(count=st.integers(2, 5))
@fixed
def test_a_start_that_a_loop_says_for_each_epoch_is_no_restart(detectors: list[Detector], count: int) -> None:
    lines = [line for step in range(count) for line in ("Start training", f"step {step} loss: 0.5")]
    done = Stand(detectors).feed(*lines)
    assert attempts(done) == [(1, step) for step in range(count)]
    assert events(done) == ["training_started"]


def test_a_start_behind_an_end_is_a_new_attempt(stand: Stand) -> None:
    done = stand.feed("Start training", "step 5 loss: 0.5", "Training finished", "Start training", "step 1 loss: 0.5")
    assert attempts(done) == [(1, 5), (2, 1)]


@given(losses_=st.lists(numbers, min_size=1, max_size=4))
@fixed
def test_columns_named_by_two_words(detectors: list[Detector], losses_: list[float]) -> None:
    rows = [f"{index:10d} {loss:16.5f}            2.31s" for index, loss in enumerate(losses_, 1)]
    found = losses(Stand(detectors), "      Iter       Train Loss   Remaining Time ", *rows)
    assert [step for step, _ in found] == list(range(1, len(losses_) + 1))
    assert [loss for _, loss in found] == pytest.approx(losses_, abs=1e-4)


@given(rank=st.integers(0, 99), step=st.integers(1, 10**6), loss=numbers)
@fixed
def test_numbers_that_measure_nothing_are_not_the_announced_steps(
    detectors: list[Detector], rank: int, step: int, loss: float
) -> None:
    """An id may hold the letters of a measure (`acc`)."""
    done = Stand(detectors).feed(
        f"iteration {step}/9999999",
        f"worker-0:53:401 [0] NCCL INFO comm 0x7b90946acc30 rank {rank} nranks 100 cudaDev 0 busId 1000",
        f"steps_per_s=3.5, loss={loss}, entropy=7.5",
    )
    (row,) = of(StepMetrics, done)
    assert (row.row_step, row.values["lm_loss"]) == (step, loss)
    assert not row.values.keys() & {"rank", "nranks"}
