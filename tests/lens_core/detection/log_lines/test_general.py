"""Any line that holds a counter and a loss is a step; bars, announcements and evaluations beside it are not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Event, StepMetrics
from lens_core.detection.log_lines import LineEngine
from lens_core.plugin_api.components import Detector
from tests.generated import examples
from tests.lens_core.detection.log_lines.stand import Stand, attempts, of

COUNTERS = ("step", "iters", "Iteration", "global_step", "global iter", "nupdates", "num_updates", "Step", "iter")
LOSSES = ("loss", "Loss", "train loss", "ce_loss", "cross-entropy-loss", "total_loss", "training_loss")
steps = st.integers(0, 10**7)
numbers = st.floats(0.001, 1e4).map(lambda number: float(f"{number:.5g}"))


def rows(stand: Stand, *lines: str) -> list[tuple[int, float | None]]:
    done = stand.feed(*lines)
    return [(row.row_step, row.values.get("lm_loss")) for row in of(StepMetrics, done)]


@given(
    counter=st.sampled_from(COUNTERS),
    name=st.sampled_from(LOSSES),
    step=steps,
    loss=numbers,
    hint=st.sampled_from([": ", "=", " = ", ":"]),
    separator=st.sampled_from([", ", " | ", "  ", "\t", " - "]),
    prefix=st.sampled_from(["", "2024-05-01 12:00:00 INFO - ", "[train.py:35] ", "| ", "[rank0]: "]),
    total=st.sampled_from([None, "/", " / "]),
    padding=st.integers(0, 8),
)
@settings(deadline=None)
def test_a_counter_and_a_loss_are_a_step(
    engine: LineEngine,
    counter: str,
    name: str,
    step: int,
    loss: float,
    hint: str,
    separator: str,
    prefix: str,
    total: str | None,
    padding: int,
) -> None:
    shown = f"{step:0{padding}d}" + (f"{total}{step + 7}" if total else "")
    line = f"{prefix}{counter}{hint}{shown}{separator}{name}{hint}{loss}{separator}acc{hint}0.5"
    found = [reading for reading in engine.read_line(line) if reading.kind == "metric"]
    assert [(reading.iteration, reading.values["lm_loss"]) for reading in found] == [(step, loss)], line


@given(step=steps, loss=numbers, other=numbers, word=st.sampled_from(["test", "eval", "valid", "dev"]))
@settings(deadline=None)
def test_numbers_of_an_evaluation_keep_their_name(
    engine: LineEngine, step: int, loss: float, other: float, word: str
) -> None:
    found = engine.read_line(f"step: {step}   train loss: {loss}   {word} loss: {other}   tokens/sec: 10.5")
    assert [(one.iteration, one.values["lm_loss"], one.values[f"{word}/loss"]) for one in found] == [
        (step, loss, other)
    ]


@given(step=steps, loss=numbers, name=st.sampled_from(["iter", "step", "iteration", "global_step"]))
@settings(deadline=None)
def test_json_lines_of_any_logger(engine: LineEngine, step: int, loss: float, name: str) -> None:
    for line in (
        json.dumps({name: step, "loss": loss, "lr": 0.5}),
        f"stats: {json.dumps({name: step, 'loss': loss})}",
        json.dumps({"name": "loss", "data": {name: step, "value": loss}}),
        "DLLL " + json.dumps({"type": "LOG", name: step, "data": {"loss": loss}}),
    ):
        found = [reading for reading in engine.read_line(line) if reading.kind == "metric"]
        assert [(reading.iteration, reading.values["lm_loss"]) for reading in found] == [(step, loss)], line


@pytest.mark.parametrize(
    "label", ["Loading weights", "Loading checkpoint shards", "Fetching 4 files", "Map (num_proc=4)"]
)
def test_a_bar_of_other_work_counts_no_step(stand: Stand, label: str) -> None:
    stand.feed(f"{label}: 100%|██████████| 290/290 [00:01<00:00, 200.0it/s]")
    found = rows(stand, "{'loss': 3.0, 'epoch': 0.5}", "{'loss': 2.0, 'epoch': 1.0}")
    assert [loss for _, loss in found] == [3.0, 2.0]
    assert 290 not in [step for step, _ in found]


def test_the_bar_of_an_evaluation_between_two_rows(stand: Stand) -> None:
    done = stand.feed(
        " 50%|█████     | 12/24 [00:10<00:10,  1.2it/s]",
        "{'loss': 3.0, 'learning_rate': 1e-05, 'epoch': 1.0}",
        "100%|██████████| 6/6 [00:01<00:00,  6.0it/s]",
        "{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 1.25}",
        " 75%|███████▌  | 18/24 [00:15<00:05,  1.2it/s]",
        "{'loss': 2.0, 'learning_rate': 1e-05, 'epoch': 1.5}",
    )
    assert attempts(done) == [(1, 12), (1, 15), (1, 18)]


@given(data=st.data())
@settings(deadline=None, max_examples=examples(30))
def test_no_row_takes_the_place_of_another_because_a_bar_moved(detectors: list[Detector], data: st.DataObject) -> None:
    total = data.draw(st.integers(10, 500))
    marks = sorted(data.draw(st.sets(st.integers(1, total), min_size=2, max_size=6)))
    stand = Stand(detectors)
    found: list[tuple[int | None, int]] = []
    for done in marks:
        stand.feed(f"{done * 100 // total:3d}%|█  | {done}/{total} [00:10<00:10,  1.2it/s]")
        found += attempts(stand.feed(f"{{'loss': 2.0, 'grad_norm': 1.0, 'epoch': {done / total:.6f}}}"))
        for _ in range(data.draw(st.integers(0, 2))):
            short = data.draw(st.integers(1, 9))
            stand.feed(f"100%|███| {short}/{short} [00:01<00:00,  6.0it/s]")
    assert found == [(1, done) for done in marks]


def test_a_bar_of_lightning_that_begins_anew_is_no_restart(stand: Stand) -> None:
    done = stand.feed(
        "Epoch 0: 100%|██████████| 8/8 [00:01<00:00,  8.0it/s, loss=0.8, v_num=1]",
        "Epoch 0:   0%|          | 0/8 [00:00<00:00,  8.0it/s, loss=0.8, v_num=1]",
        "Epoch 1:   0%|          | 0/8 [00:00<00:00,  8.0it/s, loss=0.8, v_num=1]",
        "Epoch 1:  12%|█         | 1/8 [00:00<00:00,  8.0it/s, loss=0.7, v_num=1]",
    )
    assert [(row.attempt, row.row_step, row.values["lm_loss"]) for row in of(StepMetrics, done)] == [
        (1, 8, 0.8),
        (1, 9, 0.7),
    ]


def test_an_epoch_and_a_step_without_a_total_count_on(stand: Stand) -> None:
    lines = [f"epoch {epoch} step {step} loss: 2.0" for epoch in (1, 2) for step in (5, 10, 15)]
    assert attempts(stand.feed(*lines)) == [(1, step) for step in (5, 10, 15, 20, 25, 30)]


def test_numbers_below_the_step_that_was_announced(stand: Stand) -> None:
    lines = [
        line
        for step in (10, 20)
        for line in (f"iteration {step}/100", f"steps_per_s=3.5, loss={step / 10}, entropy=7.5")
    ]
    assert rows(stand, *lines) == [(10, 1.0), (20, 2.0)]


@pytest.mark.parametrize(
    "lines",
    [
        ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "ValueError: no such thing"],
        ["OSError: [Errno 28] No space left on device"],
        ["[rank7]: KeyError: 'layers'"],
        ["2024-01-01 10:00:00 ERROR trainer: Exception during training: it broke"],
        [
            "2023-01-01 [7] Traceback (most recent call last):",
            '2023-01-01 [7]   File "a.py", line 1',
            "2023-01-01 [7] torch.distributed.DistNetworkError: gone",
        ],
    ],
)
def test_an_exception_that_ends_a_program_is_a_failure(stand: Stand, lines: list[str]) -> None:
    found = of(Event, stand.feed(*lines))
    assert [event.type for event in found] == ["training_failed"]
    assert found[0].details["reason"]


@pytest.mark.parametrize(
    "lines",
    [
        ["Exception ignored in: <function A.__del__ at 0x7f>", "Traceback (most recent call last):", "ValueError: x"],
        ["Exception in thread Thread-1:", "Traceback (most recent call last):", "ValueError: x"],
        ["retrying after ConnectionError: timed out"],
        ["UserWarning: this is deprecated"],
    ],
)
def test_an_exception_that_ends_nothing(stand: Stand, lines: list[str]) -> None:
    assert of(Event, stand.feed(*lines)) == []


@given(text=st.text(alphabet="step:loss=,[](){}|/%0123456789.eE+- \tnaif'\"", max_size=300))
@settings(deadline=None, max_examples=examples(300))
def test_no_line_raises(engine: LineEngine, text: str) -> None:
    engine.read_line(f"step loss {text}")
    engine.read_line(text)


@given(
    data=st.data(),
    word=st.sampled_from(["val", "valid", "validation", "eval", "test", "dev"]),
    loss=numbers,
    other=numbers,
    step=st.integers(1, 10**6),
)
@settings(deadline=None, max_examples=examples(60))
def test_results_of_an_evaluation_stand_beside_their_step(
    detectors: list[Detector], data: st.DataObject, word: str, loss: float, other: float, step: int
) -> None:
    line = data.draw(
        st.sampled_from(
            [
                f"{word}_loss: {other}",
                f"{word} loss {other}, {word} accuracy 0.5",
                f"[{word}] loss={other} acc=0.5",
                f"step {step}: {word} loss: {other}",
                f'{{"step": {step}, "{word}_loss": {other}}}',
                f"{{'{word}_loss': {other}, '{word}_runtime': 3.5, 'epoch': 0.32}}",
                f"2024-05-01 12:00:00 INFO - {word.capitalize()} - loss: {other}",
            ]
        )
    )
    stand = Stand(detectors)
    done = stand.feed(f"step: {step} loss: {loss}", line)
    (row,) = of(StepMetrics, done)
    assert (row.row_step, row.values["lm_loss"], row.values[f"{word}/loss"]) == (step, loss, other), line


@pytest.mark.parametrize(
    "line",
    [
        "Test: [  10/48]  Loss: 5.1 (5.2)",
        "valid on 'valid' subset  1000 / 1311 loss=1.60",
        "eval step 9, loss: 2.5",
        "Validation: 10%|#  | 10/100 [00:01<00:09, 1.0it/s, loss=2.5]",
        "best validation loss 2.5",
        "validation loss did not improve from 2.5",
        "Total eval samples after filtering: 996",
        "val_size: 500",
    ],
)
def test_an_evaluation_under_way_or_a_setting_is_no_result(stand: Stand, line: str) -> None:
    done = stand.feed("step: 10 loss: 3.5", line)
    assert [(row.row_step, row.values["lm_loss"]) for row in of(StepMetrics, done)] == [(10, 3.5)]
    assert not [name for row in of(StepMetrics, done) for name in row.values if "/" in name]


@given(first=st.sampled_from([0, 1]), per_epoch=st.integers(2, 5000), data=st.data())
@settings(deadline=None, max_examples=examples(40))
def test_epochs_count_on_from_the_first_one(
    detectors: list[Detector], first: int, per_epoch: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(1, per_epoch - 1))
    line = data.draw(
        st.sampled_from(
            [
                "TRAIN [{e}][{s}/{n}] Loss 2.5 (2.6)",
                "Epoch: [{e}][{s}/{n}] loss: 2.5",
                "epoch {e} step {s}/{n} loss=2.5",
            ]
        )
    )
    lines = [line.format(e=epoch, s=step, n=per_epoch) for epoch in range(first, first + 3)]
    assert attempts(Stand(detectors).feed(*lines)) == [(1, step + index * per_epoch) for index in range(3)]


@given(loss=numbers, other=numbers, first=st.integers(0, 1000))
@settings(deadline=None, max_examples=examples(30))
def test_losses_below_the_number_of_an_epoch(detectors: list[Detector], loss: float, other: float, first: int) -> None:
    when = "2024-02-12 11:05:32.411231: "
    lines = [
        line
        for epoch in (first, first + 1)
        for line in (
            f"{when}Epoch {epoch}",
            f"{when}Current learning rate: 0.01",
            f"{when}train_loss {loss + epoch}",
            f"{when}val_loss {other}",
        )
    ]
    found = of(StepMetrics, Stand(detectors).feed(*lines))
    assert [(row.row_step, row.values["lm_loss"], row.values["val/loss"]) for row in found] == [
        (epoch, loss + epoch, other) for epoch in (first, first + 1)
    ]


@given(step=steps, loss=numbers, at=st.sampled_from(["at step", "at iteration", "after step", "at global step"]))
@settings(deadline=None, max_examples=examples(40))
def test_a_loss_at_a_step(engine: LineEngine, step: int, loss: float, at: str) -> None:
    found = engine.read_line(f"2024-01-01T10:00:00 - callbacks.py:81 - INFO :: train loss {at} {step}: {loss}")
    assert [(one.iteration, one.values["lm_loss"]) for one in found] == [(step, loss)]


@given(step=st.integers(1, 10**7), loss=numbers, counter=st.sampled_from(["step", "global_step", "total_timesteps"]))
@settings(deadline=None, max_examples=examples(40))
def test_a_table_of_keys_and_values_is_one_step(
    detectors: list[Detector], step: int, loss: float, counter: str
) -> None:
    rule = "-" * 30
    table = [rule, "| grad_norm     | 0.912    |", f"| loss | {loss} |", f"| {counter} | {step} |", rule]
    (row,) = of(StepMetrics, Stand(detectors).feed(*table))
    assert (row.row_step, row.values["lm_loss"], row.values["grad_norm"]) == (step, loss, 0.912)


@given(step=steps, loss=numbers, counter=st.sampled_from(["global_step: ", "step ", "[train] iteration=", "Step: "]))
@settings(deadline=None, max_examples=examples(40))
def test_a_dictionary_behind_its_counter(engine: LineEngine, step: int, loss: float, counter: str) -> None:
    found = engine.read_line(
        f"I0101 10:00:00.123456 1390 train.py:201] {counter}{step}, {{'loss': {loss}, 'learning_rate': 0.5}}"
    )
    assert [(one.iteration, one.values["lm_loss"]) for one in found] == [(step, loss)]


def test_an_evaluation_that_is_an_event_keeps_its_numbers(stand: Stand) -> None:
    done = stand.feed(
        " iteration 100/ 1000 | elapsed time per iteration (ms): 1000.0 | lm loss: 2.5E+00 |",
        " validation loss at iteration 100 | lm loss value: 3.5E+00 | lm loss PPL: 3.3E+01 | ",
    )
    (row,) = of(StepMetrics, done)
    assert (row.row_step, row.values["lm_loss"], row.values["validation/lm_loss_value"]) == (100, 2.5, 3.5)


@given(
    counter=st.sampled_from(("step", "iter", "Iteration", "global_step", "Step")),
    name=st.sampled_from(("loss", "Loss", "train_loss", "total_loss")),
    step=steps,
    loss=numbers,
    others=st.lists(st.sampled_from(["lr 1e-4", "acc 90.1%", "time 12.5ms", "grad_norm 0.25"]), unique=True),
    is_first=st.booleans(),
)
@settings(deadline=None)
def test_names_and_numbers_in_turn_are_a_step(
    engine: LineEngine, counter: str, name: str, step: int, loss: float, others: list[str], is_first: bool
) -> None:
    """`print("step", step, "loss", loss)` separates nothing by a sign."""
    pairs = [f"{counter} {step}", f"{name} {loss}"]
    line = " ".join([*(pairs if is_first else reversed(pairs)), *others])
    found = [reading for reading in engine.read_line(line) if reading.kind == "metric"]
    assert [(reading.iteration, reading.values["lm_loss"]) for reading in found] == [(step, loss)], line


@pytest.mark.parametrize(
    "line",
    ["at step 5 the loss 3", "saved model at step 100 with loss 0.5", "resumed step 5 loss 3 ok"],
)
def test_a_sentence_with_a_step_and_a_loss_is_no_step(stand: Stand, line: str) -> None:
    assert rows(stand, line) == []
